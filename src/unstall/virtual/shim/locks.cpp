#include "locks.h"

#include "asserts.h"
#include "log.h"

#include <pthread.h>

#include <vector>

namespace unstall {
namespace {

struct All {
  std::mutex lock;
  std::vector<Lock*> locks;
};

All& all() {
  static auto* all = new All;
  return *all;
}

void before_fork() {
  all().lock.lock();
  for (Lock* each : all().locks) each->lock();
}

void after_fork() {
  for (Lock* each : all().locks) each->unlock();
  all().lock.unlock();
}

void in_child() {
  after_fork();
  set_logging(false);
  forked();
}

} // namespace

Lock::Lock() {
  static const int registered = pthread_atfork(before_fork, after_fork, in_child);
  (void)registered;
  std::lock_guard guard(all().lock);
  all().locks.push_back(this);
}

} // namespace unstall
