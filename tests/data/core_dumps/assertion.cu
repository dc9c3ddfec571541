#include <cassert>
extern "C" __global__ void checks(const long* index, float* out, long size) { assert(index[threadIdx.x] < size); out[threadIdx.x] = 1.0f; }
extern "C" __global__ void adds(float* out) { out[threadIdx.x] += 1.0f; }
