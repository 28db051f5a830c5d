#include "rank_agent/module_names.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rank_agent/fault_guard.h"

namespace fulldeck::rank_agent {
namespace {

constexpr std::size_t kMaxSymbols = 1 << 22;

template <std::size_t size>
void CopyText(char (&into)[size], const char* from) {
  std::size_t length = 0;
  for (; length + 1 < size && from[length] != '\0'; ++length) into[length] = from[length];
  into[length] = '\0';
}

// What a frame's address points into: a return address can be the first byte behind its function.
std::uintptr_t Inside(const NativeStack& stack, std::size_t frame) {
  return stack.addresses[frame] - (frame == 0 ? 0 : 1);
}

struct Mapping {
  std::uintptr_t begin;
  std::uintptr_t end;
  std::uintptr_t offset;
  const char* path;
};

const char* ReadHex(const char* text, std::uintptr_t& number) {
  number = 0;
  for (;; ++text) {
    if (*text >= '0' && *text <= '9') {
      number = number << 4 | static_cast<std::uintptr_t>(*text - '0');
    } else if (*text >= 'a' && *text <= 'f') {
      number = number << 4 | static_cast<std::uintptr_t>(*text - 'a' + 10);
    } else {
      return text;
    }
  }
}

// "7f12-7f34 r-xp 00001000 08:01 1234      /usr/lib/libx.so"
bool ParseMapping(const char* line, Mapping& mapping) {
  line = ReadHex(line, mapping.begin);
  if (*line++ != '-') return false;
  line = ReadHex(line, mapping.end);
  if (*line != ' ') return false;
  line = std::strchr(line + 1, ' ');
  if (line == nullptr) return false;
  line = ReadHex(line + 1, mapping.offset);
  for (int field = 0; field < 2; ++field) {
    if (*line != ' ') return false;
    line = std::strchr(line + 1, ' ');
    if (line == nullptr) return false;
  }
  while (*line == ' ') ++line;
  mapping.path = line;
  return true;
}

// The last piece of offset 0; not on the stack, which may be small.
Module first_piece;

// Goes through the mappings in order. A file is mapped in pieces, and the one of offset 0 comes first.
class Mappings {
 public:
  Mappings(const NativeStack& stack, NamedStack& named) : stack_(stack), named_(named) {}

  void See(const Mapping& mapping) {
    if (mapping.path[0] != '\0' && mapping.offset == 0) {
      first_piece.start = mapping.begin;
      CopyText(first_piece.path, mapping.path);
    }
    int module = -1;
    for (std::size_t frame = 0; frame < stack_.count; ++frame) {
      const std::uintptr_t address = Inside(stack_, frame);
      if (address < mapping.begin || address >= mapping.end || mapping.path[0] == '\0') continue;
      if (module < 0) module = ModuleOf(mapping);
      named_.places[frame].module = module;
    }
  }

 private:
  int ModuleOf(const Mapping& mapping) {
    const bool continues = std::strncmp(first_piece.path, mapping.path, sizeof first_piece.path - 1) == 0;
    const std::uintptr_t start = continues ? first_piece.start : mapping.begin - mapping.offset;
    for (std::size_t i = 0; i < named_.module_count; ++i) {
      if (named_.modules[i].start == start) return static_cast<int>(i);
    }
    if (named_.module_count == kMaxFrames) return -1;
    Module& module = named_.modules[named_.module_count];
    module.start = module.bias = start;
    module.is_elf = false;
    CopyText(module.path, mapping.path);
    return static_cast<int>(named_.module_count++);
  }

  const NativeStack& stack_;
  NamedStack& named_;
};

void ReadMappings(Mappings& mappings) {
  static char buffer[8192];
  const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  std::size_t held = 0;
  for (;;) {
    const ssize_t got = read(file, buffer + held, sizeof buffer - 1 - held);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    held += static_cast<std::size_t>(got);
    buffer[held] = '\0';
    char* line = buffer;
    while (char* end = std::strchr(line, '\n')) {
      *end = '\0';
      Mapping mapping{};
      if (ParseMapping(line, mapping)) mappings.See(mapping);
      line = end + 1;
    }
    held = static_cast<std::size_t>(buffer + held - line);
    std::memmove(buffer, line, held);
    if (held == sizeof buffer - 1) held = 0;  // a line longer than any path can be
  }
  close(file);
}

struct SymbolTable {
  const ElfW(Sym) * symbols;
  const char* names;
  std::size_t count;
};

std::size_t CountByGnuHash(const std::uint32_t* hash) {
  const std::uint32_t bucket_count = hash[0];
  const std::uint32_t first_symbol = hash[1];
  const std::uint32_t bloom_words = hash[2];
  const std::uint32_t* const buckets = hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / 4);
  const std::uint32_t* const chains = buckets + bucket_count;
  std::uint32_t last = 0;
  for (std::uint32_t i = 0; i < bucket_count; ++i) last = std::max(last, buckets[i]);
  if (last < first_symbol) return first_symbol;
  while ((chains[last - first_symbol] & 1) == 0) ++last;
  return std::size_t{last} + 1;
}

// Fills module.bias and finds the table of what the file exports.
SymbolTable ReadTables(Module& module) {
  SymbolTable table{};
  const auto* const header = reinterpret_cast<const ElfW(Ehdr)*>(module.start);
  if (std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_phentsize != sizeof(ElfW(Phdr))) return table;
  const auto* const segments = reinterpret_cast<const ElfW(Phdr)*>(module.start + header->e_phoff);
  const ElfW(Phdr)* dynamic = nullptr;
  for (int i = header->e_phnum - 1; i >= 0; --i) {
    if (segments[i].p_type == PT_LOAD && segments[i].p_offset == 0) module.bias = module.start - segments[i].p_vaddr;
    if (segments[i].p_type == PT_DYNAMIC) dynamic = &segments[i];
  }
  module.is_elf = true;
  if (dynamic == nullptr) return table;
  // The loader has turned these numbers into addresses, or has left them: the kernel's own library stays as it is.
  const auto address = [&module](std::uintptr_t number) {
    return number < module.bias ? module.bias + number : number;
  };
  const std::uint32_t* gnu_hash = nullptr;
  const std::uint32_t* hash = nullptr;
  const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(module.bias + dynamic->p_vaddr);
  for (; entry->d_tag != DT_NULL; ++entry) {
    const std::uintptr_t value = address(entry->d_un.d_ptr);
    if (entry->d_tag == DT_SYMTAB) table.symbols = reinterpret_cast<const ElfW(Sym)*>(value);
    if (entry->d_tag == DT_STRTAB) table.names = reinterpret_cast<const char*>(value);
    if (entry->d_tag == DT_GNU_HASH) gnu_hash = reinterpret_cast<const std::uint32_t*>(value);
    if (entry->d_tag == DT_HASH) hash = reinterpret_cast<const std::uint32_t*>(value);
  }
  if (table.symbols == nullptr || table.names == nullptr) return table;
  if (hash != nullptr) {
    table.count = hash[1];
  } else if (gnu_hash != nullptr) {
    table.count = CountByGnuHash(gnu_hash);
  }
  table.count = std::min(table.count, kMaxSymbols);
  return table;
}

struct Naming {
  const NativeStack* stack;
  NamedStack* named;
  int module;
};

// The functions of all frames in one module, in one pass over its table: that of a big library has 10^5 rows.
void NameInModule(void* argument) {
  const Naming& naming = *static_cast<Naming*>(argument);
  const NativeStack& stack = *naming.stack;
  NamedStack& named = *naming.named;
  Module& module = named.modules[naming.module];
  const SymbolTable table = ReadTables(module);
  for (std::size_t i = 0; i < table.count; ++i) {
    const ElfW(Sym)& symbol = table.symbols[i];
    const auto type = symbol.st_info & 15;
    if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol.st_shndx == SHN_UNDEF) continue;
    const std::uintptr_t begin = module.bias + symbol.st_value;
    for (std::size_t frame = 0; frame < stack.count; ++frame) {
      FramePlace& place = named.places[frame];
      const std::uintptr_t address = Inside(stack, frame);
      if (place.module != naming.module || place.function[0] != '\0') continue;
      if (address < begin || address >= begin + std::max<std::uintptr_t>(symbol.st_size, 1)) continue;
      place.into = stack.addresses[frame] - begin;
      CopyText(place.function, table.names + symbol.st_name);
    }
  }
}

}  // namespace

void NameFrames(const NativeStack& stack, NamedStack& named) {
  named.module_count = 0;
  for (std::size_t frame = 0; frame < stack.count; ++frame) {
    named.places[frame].module = -1;
    named.places[frame].function[0] = '\0';
  }
  Mappings mappings(stack, named);
  ReadMappings(mappings);
  for (std::size_t i = 0; i < named.module_count; ++i) {
    Naming naming{&stack, &named, static_cast<int>(i)};
    if (named.modules[i].path[0] == '/' || std::strcmp(named.modules[i].path, "[vdso]") == 0) {
      RunGuarded(NameInModule, &naming);
    }
  }
  for (std::size_t frame = 0; frame < stack.count; ++frame) {
    FramePlace& place = named.places[frame];
    if (place.module >= 0) place.offset = stack.addresses[frame] - named.modules[place.module].bias;
  }
}

const char* BaseName(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

}  // namespace fulldeck::rank_agent
