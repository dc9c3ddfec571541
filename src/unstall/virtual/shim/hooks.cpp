// What code of the CPU build asks of CUDA. torch asks once for an object of the class named "CUDAHooks", while it is
// imported: this is loaded before.
#include "devices.h"
#include "generator.h"
#include "log.h"
#include "memory.h"

#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>

namespace at {

using c10::DeviceIndex;

struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return deviceCount() > 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return DeviceIndex(unstall::settings().devices); }
  int getNumGPUs() const override { return unstall::settings().devices; }
  DeviceIndex current_device() const override { return DeviceIndex(unstall::current_device()); }
  DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(DeviceIndex device) const override {
    unstall::set_current_device(unstall::device_number(int(device)));
  }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    DeviceIndex before = current_device();
    setCurrentDevice(device);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override { return exchangeDevice(device); }
  void deviceSynchronize(DeviceIndex device) const override {
    unstall::sync_device(unstall::device_number(int(device)));
  }

  const Generator& getDefaultGenerator(DeviceIndex device) const override { return unstall::default_generator(device); }
  Generator getNewGenerator(DeviceIndex device) const override { return unstall::new_generator(device); }

  bool isPinnedPtr(const void* data) const override { return unstall::is_pinned(data); }
  Allocator* getPinnedMemoryAllocator() const override { return unstall::pinned_allocator(); }
  Allocator* getCUDADeviceAllocator() const override { return unstall::device_allocator(); }
  Device getDeviceFromPtr(void*) const override { return Device(kCUDA, current_device()); }

  // The libraries that a wheel for CUDA 13.0 comes with.
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool hasMAGMA() const override { return true; }
  bool hasCuDNN() const override { return true; }
  bool hasCuSOLVER() const override { return true; }
  bool hasCuBLASLt() const override { return true; }
  bool compiledWithCuDNN() const override { return true; }
  bool supportsDilatedConvolutionWithCuDNN() const override { return true; }
  bool supportsDepthwiseConvolutionWithCuDNN() const override { return true; }
  bool supportsBFloat16ConvolutionWithCuDNNv8() const override { return true; }
  bool supportsBFloat16RNNWithCuDNN() const override { return true; }
  long versionCuDNN() const override { return 91900; }
  long versionRuntimeCuDNN() const override { return 91900; }
  long versionCuDNNFrontend() const override { return 11500; }
  long versionCUDART() const override { return 13000; }
  double batchnormMinEpsilonCuDNN() const override { return 0; }
  int64_t cuFFTGetPlanCacheMaxSize(DeviceIndex) const override { return 1023; }
  void cuFFTSetPlanCacheMaxSize(DeviceIndex, int64_t) const override {}
  int64_t cuFFTGetPlanCacheSize(DeviceIndex) const override { return 0; }
  void cuFFTClearPlanCache(DeviceIndex) const override {}
  std::string showConfig() const override {
    return "  - a virtual GPU of unstall: computed on the CPU, timed by a model\n";
  }
};

REGISTER_CUDA_HOOKS(CUDAHooks)

} // namespace at
