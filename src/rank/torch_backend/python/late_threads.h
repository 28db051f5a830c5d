// Handles threads of the program that return from a call after Python has begun to finalize.
//
// Python up to 3.13 ends a thread that acquires the GIL too late with pthread_exit(), which unwinds its stack; later
// versions let it hang. torch reacquires the GIL in a destructor when a call returns, and a stack cannot be unwound out
// of a destructor: the process would end with "terminate called without an active exception".
#pragma once

namespace fulldeck::torch_backend {

// From here on such a thread hangs, as in later Pythons, and the process ends with the program's own exit code. Any
// other reason to terminate goes to the previous handler (std::set_terminate). Call it from the thread that finalizes
// Python, shortly before (an atexit handler); a second call has no effect.
void LetLateThreadsHang();

}  // namespace fulldeck::torch_backend
