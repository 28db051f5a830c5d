// Starts a thread with a name and with all signals blocked, so that the program's handlers never run in it.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace fulldeck::torch_backend {

// `name`: at most 15 characters, the kernel's limit.
template <typename Body>
std::thread StartNamedThread(const char* name, Body body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace fulldeck::torch_backend
