// Removes the agent from an environment, so that child processes do not get it: our entry of LD_PRELOAD (other entries
// stay as they are; a variable that becomes empty is removed) and the variable that names our file. Modifies the array
// itself, because a program may have its own setenv (bash does). Not to be called once there are threads.
#pragma once

#include <cstddef>
#include <string_view>

namespace fulldeck::agent {

// "a:ours b" without "ours" is "a b". Entries are separated by colons and spaces, as for the loader. Works in place and
// returns the new length; an entry is removed with one separator.
std::size_t RemoveEntry(char* list, std::size_t length, std::string_view entry);

// The value of a variable, or nullptr.
const char* FindVariable(char* const* environment, std::string_view name);

// `library`: the path of this library as in LD_PRELOAD; if it is empty, nothing is changed.
void RemoveAgent(char** environment, std::string_view library);

}  // namespace fulldeck::agent
