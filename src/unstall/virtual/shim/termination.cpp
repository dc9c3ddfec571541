#include "termination.h"

#include "gil.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <pthread.h>
#include <semaphore.h>
#include <sys/prctl.h>
#include <unistd.h>

namespace unstall {
namespace {

constexpr int64_t TWICE_NS = 1'000'000'000; // a signal to the process group comes twice: `unstall run` passes it on
constexpr int GIL_WITHIN_S = 5; // code that never releases the GIL would keep the process alive
constexpr int ENDED_BY[] = {SIGTERM, SIGHUP};

pid_t owner = 0;
std::atomic<int> asked{0}; // the signal that ends this process
std::atomic<int64_t> asked_ns{0};
sem_t wake, begun, kept;
PyObject* keeper = nullptr;

int64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

int supervisor_is_gone() { return SIGRTMAX - 5; }

[[noreturn]] void end_by(int number) {
  if (number == supervisor_is_gone()) number = SIGKILL;
  std::signal(number, SIG_DFL);
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_UNBLOCK, &all, nullptr);
  kill(getpid(), number);
  while (true) pause();
}

void handle(int number) {
  int error = errno, none = 0;
  if (getpid() != owner) end_by(number); // a forked child has no run to keep
  if (asked.compare_exchange_strong(none, number)) {
    asked_ns = now();
    sem_post(&wake);
  } else if (now() - asked_ns > TWICE_NS) {
    end_by(number); // a second request after this time ends the process at once
  }
  errno = error;
}

void* keep(void*) {
  if (python_runs()) {
    PyGILState_STATE state = PyGILState_Ensure();
    sem_post(&begun);
    PyObject* done = PyObject_CallNoArgs(keeper);
    if (done == nullptr) PyErr_Clear();
    Py_XDECREF(done);
    PyGILState_Release(state);
  } else {
    sem_post(&begun);
  }
  sem_post(&kept);
  return nullptr;
}

void* wait_for_end(void*) {
  while (sem_wait(&wake)) {}
  timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += GIL_WITHIN_S;
  pthread_t thread;
  if (!pthread_create(&thread, nullptr, keep, nullptr) && !sem_timedwait(&begun, &until))
    while (sem_wait(&kept)) {}
  end_by(asked);
}

bool start_waiting() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); // only the program's own threads take its signals
  pthread_t thread;
  int failed = pthread_create(&thread, nullptr, wait_for_end, nullptr);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!failed) pthread_detach(thread);
  return !failed;
}

}

void keep_at_termination(PyObject* keep) {
  if (keeper != nullptr) return;
  sem_init(&wake, 0, 0);
  sem_init(&begun, 0, 0);
  sem_init(&kept, 0, 0);
  owner = getpid();
  keeper = Py_NewRef(keep);
  if (!start_waiting()) return;
  struct sigaction ours = {}, theirs;
  ours.sa_handler = handle;
  ours.sa_flags = SA_RESTART;
  sigfillset(&ours.sa_mask);
  for (int number : ENDED_BY)
    if (!sigaction(number, nullptr, &theirs) && theirs.sa_handler == SIG_DFL) sigaction(number, &ours, nullptr);
  int by_parent = 0; // launching/_bootstrap has asked for SIGKILL, if the parent is `unstall run`
  if (prctl(PR_GET_PDEATHSIG, &by_parent) || by_parent != SIGKILL) return;
  pid_t parent = getppid();
  if (sigaction(supervisor_is_gone(), &ours, nullptr) || prctl(PR_SET_PDEATHSIG, supervisor_is_gone())) return;
  if (getppid() != parent) kill(getpid(), supervisor_is_gone());
}

}
