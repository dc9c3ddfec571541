// The process group over NCCL: see nccl.cpp.
#pragma once

namespace pybind11 {
class module_;
}

namespace unstall {

// Adds the class ProcessGroupNCCL to torch._C._distributed_c10d, which a CPU build of torch does not have.
void define_nccl(pybind11::module_ c10d);

} // namespace unstall
