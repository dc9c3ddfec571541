// Headers of torch that most files here need, and that take most of the time to compile. They are precompiled.

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <map>
#include <unordered_map>
