// Pinned memory that operators of the CPU read and write while a copy from or to it may still run: such a race is found
// only if the log says so. What it costs is paid by programs with such copies alone.
#pragma once
#include "log.h"

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>

namespace unstall {

extern std::atomic<bool> copies_may_run;

// A copy of pinned memory that the host does not wait for.
void copy_started(int device, int64_t stream);
// The host has waited for the stream; for all of the device's.
void stream_finished(int device, int64_t stream);
void device_finished(int device);

using HostUses = c10::SmallVector<Use, 4>;
// What an operator that begins is about to use: nothing where it only makes views, or is made of other operators.
HostUses host_uses(const at::RecordFunction& function);
// The host reads a tensor of the CPU now, by no operator.
void log_host_read(const at::Tensor& tensor, const char* name);

} // namespace unstall
