// Takes the agent out of an environment, so that what this process starts is not given it: our entry of LD_PRELOAD
// (other entries stay as they were written; a variable that becomes empty goes) and the variable that names our file.
// Works on the array itself, because a program may bring its own setenv (bash does). Not a thing to do once there are
// threads.
#pragma once

#include <cstddef>
#include <string_view>

namespace fulldeck::agent {

// "a:ours b" without "ours" is "a b". Entries stand between colons and spaces, as the loader has it. Works in place and
// returns the new length; an entry takes one separator with it.
std::size_t RemoveEntry(char* list, std::size_t length, std::string_view entry);

// The value of a variable, or nullptr.
const char* FindVariable(char* const* environment, std::string_view name);

// `library`: the path of this library as LD_PRELOAD has it; nothing is changed when it is empty.
void RemoveAgent(char** environment, std::string_view library);

}  // namespace fulldeck::agent
