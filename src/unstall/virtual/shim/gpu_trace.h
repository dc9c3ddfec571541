// torch's GPU trace (torch.cuda._gpu_trace), which torch's CUDA code tells of events, waits and memory.
#pragma once
#include <c10/core/DeviceType.h>
#include <c10/core/impl/GPUTrace.h>

#include <cstdint>

namespace unstall {

// Calls tell(interpreter) if the program has switched the trace on.
template <class Tell>
void to_gpu_trace(Tell tell) {
  if (const c10::impl::PyInterpreter* python = c10::impl::GPUTrace::get_trace()) tell(**python);
}

// The cudaStream_t of a stream, as torch_cuda/streams.py makes it.
inline uintptr_t stream_pointer(int device, int64_t stream) {
  return stream ? uintptr_t(0x560000000000) + (uintptr_t(device) << 32) + uintptr_t(stream) * 0x160 : 0;
}

inline uintptr_t address(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}

} // namespace unstall
