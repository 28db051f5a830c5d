#include "torch_backend/python/late_threads.h"

#include <Python.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <mutex>

namespace fulldeck::torch_backend {
namespace {

// Both are written once, before the handler is installed.
std::terminate_handler handler_before = nullptr;
pthread_t ending_thread;

bool PythonEnds() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0 || Py_IsInitialized() == 0;
#else
  return _Py_IsFinalizing() != 0 || Py_IsInitialized() == 0;
#endif
}

// pthread_exit() unwinds without a catchable exception.
bool ThisThreadIsLate() {
  return PythonEnds() && std::current_exception() == nullptr && pthread_equal(pthread_self(), ending_thread) == 0;
}

void HangIfLate() {
  if (ThisThreadIsLate()) {
    // Leave signals to the thread that is still running.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    while (true) pause();
  }
  if (handler_before != nullptr) handler_before();
  std::abort();
}

}  // namespace

void LetLateThreadsHang() {
  static std::once_flag once;
  std::call_once(once, [] {
    ending_thread = pthread_self();
    handler_before = std::get_terminate();
    std::set_terminate(HangIfLate);
  });
}

}  // namespace fulldeck::torch_backend
