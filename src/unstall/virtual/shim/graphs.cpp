#include "graphs.h"

#include "log.h"

#include <c10/util/Exception.h>

namespace unstall {

bool capturing(int, int64_t) {
  return false;
}

bool any_capture() {
  return false;
}

void refuse_in_capture(const char*) {}

void capture_begin(int64_t, int, int64_t, int64_t) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "the virtual GPU cannot capture CUDA graphs yet");
}

void capture_end(int64_t) {}
void replay(int64_t, int, int64_t) {}
void free_graph(int64_t) {}

} // namespace unstall
