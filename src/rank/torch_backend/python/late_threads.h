// Threads of the program that come back from a call when Python has begun to end.
//
// Python up to 3.13 ends a thread that asks for the interpreter's lock too late with pthread_exit(), which unwinds its
// stack; later ones let it hang. torch takes the lock again in a destructor when a call returns, and a stack cannot be
// unwound out of a destructor: the process would end with "terminate called without an active exception".
#pragma once

namespace fulldeck::torch_backend {

// From here on such a thread hangs, as in later Pythons, and the process ends with the program's own exit code. Any
// other reason to terminate goes to the handler (std::set_terminate) that was there before. To be called by the thread
// that ends Python, shortly before (an atexit handler); a second call does nothing.
void LetLateThreadsHang();

}  // namespace fulldeck::torch_backend
