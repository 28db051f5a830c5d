// A program with an uncaught exception; with an argument it has its own terminate handler.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>

__attribute__((noinline)) void ThrowIt() {
  throw std::runtime_error("not caught");
}

int main(int count, char**) {
  if (count > 1) {
    std::set_terminate([] {
      std::puts("my terminate handler");
      std::fflush(stdout);
      std::abort();
    });
  }
  ThrowIt();
}
