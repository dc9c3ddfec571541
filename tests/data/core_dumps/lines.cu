__device__ __forceinline__ float load(const float *from, long long at) {
    return from[at];
}
template <int N> __global__ void gather(float *out, const float *in, const long long *index) {
    long long at = blockIdx.x * blockDim.x + threadIdx.x;
    out[at] = load(in, index[at]) * N;
}
template __global__ void gather<4>(float *, const float *, const long long *);
template __global__ void gather<5>(float *, const float *, const long long *);
