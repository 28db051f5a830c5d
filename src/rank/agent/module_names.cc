#include "agent/module_names.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "agent/fault_guard.h"

namespace fulldeck::agent {
namespace {

constexpr std::size_t kMaxSymbols = 1 << 22;

template <std::size_t size>
void CopyText(char (&into)[size], const char* from) {
  std::size_t length = 0;
  for (; length + 1 < size && from[length] != '\0'; ++length) into[length] = from[length];
  into[length] = '\0';
}

// The address inside the instruction of a frame: a return address can be the first byte after its function.
std::uintptr_t Inside(const NativeStack& stack, std::size_t frame) {
  return stack.addresses[frame] - (frame == 0 ? 0 : 1);
}

// Index of the first entry at or after `address`.
std::size_t FirstFrom(const AddressBook& book, std::uintptr_t address) {
  const auto* const found =
      std::lower_bound(book.addresses, book.addresses + book.count, address,
                       [](const NamedAddress& entry, std::uintptr_t wanted) { return entry.address < wanted; });
  return static_cast<std::size_t>(found - book.addresses);
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

// The last mapping with offset 0; not on the stack, which may be small.
Module first_mapping;

// Goes through the mappings in order. A file has several mappings, and the one with offset 0 comes first.
class Mappings {
 public:
  explicit Mappings(AddressBook& book) : book_(book) {}

  void See(const Mapping& mapping) {
    if (mapping.path[0] == '\0') return;
    if (mapping.offset == 0) {
      first_mapping.start = mapping.begin;
      CopyText(first_mapping.path, mapping.path);
    }
    int module = -1;
    for (std::size_t i = FirstFrom(book_, mapping.begin); i < book_.count && book_.addresses[i].address < mapping.end;
         ++i) {
      if (module < 0) module = ModuleOf(mapping);
      book_.addresses[i].module = module;
    }
  }

 private:
  int ModuleOf(const Mapping& mapping) {
    const bool continues = std::strncmp(first_mapping.path, mapping.path, sizeof first_mapping.path - 1) == 0;
    const std::uintptr_t start = continues ? first_mapping.start : mapping.begin - mapping.offset;
    for (std::size_t i = 0; i < book_.module_count; ++i) {
      if (book_.modules[i].start == start) return static_cast<int>(i);
    }
    if (book_.module_count == book_.module_limit) return -1;
    Module& module = book_.modules[book_.module_count];
    module.start = module.bias = start;
    module.is_elf = false;
    CopyText(module.path, mapping.path);
    return static_cast<int>(book_.module_count++);
  }

  AddressBook& book_;
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
    if (held == sizeof buffer - 1) held = 0;  // a line longer than any valid path
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
  const std::uint32_t bloom_size = hash[2];
  const std::uint32_t* const buckets = hash + 4 + bloom_size * (sizeof(ElfW(Addr)) / 4);
  const std::uint32_t* const chains = buckets + bucket_count;
  std::uint32_t last = 0;
  for (std::uint32_t i = 0; i < bucket_count; ++i) last = std::max(last, buckets[i]);
  if (last < first_symbol) return first_symbol;
  while ((chains[last - first_symbol] & 1) == 0) ++last;
  return std::size_t{last} + 1;
}

// Fills module.bias and finds the table of exported symbols.
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
  // The loader has relocated these values to addresses, or left them as they are: it does not change those of the
  // kernel's vDSO.
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
  AddressBook* book;
  int module;
};

// Names the functions of all addresses in one module, in one pass over its table.
void NameInModule(void* argument) {
  const Naming& naming = *static_cast<Naming*>(argument);
  AddressBook& book = *naming.book;
  Module& module = book.modules[naming.module];
  std::size_t first = book.count;
  std::size_t last = 0;
  for (std::size_t i = 0; i < book.count; ++i) {
    if (book.addresses[i].module != naming.module) continue;
    first = std::min(first, i);
    last = i;
  }
  const SymbolTable table = ReadTables(module);
  if (first == book.count) return;
  const std::uintptr_t lowest = book.addresses[first].address;
  const std::uintptr_t highest = book.addresses[last].address;
  for (std::size_t i = 0; i < table.count; ++i) {
    const ElfW(Sym)& symbol = table.symbols[i];
    const auto type = symbol.st_info & 15;
    if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol.st_shndx == SHN_UNDEF) continue;
    const std::uintptr_t begin = module.bias + symbol.st_value;
    const std::uintptr_t end = begin + std::max<std::uintptr_t>(symbol.st_size, 1);
    if (end <= lowest || begin > highest) continue;
    for (std::size_t found = FirstFrom(book, begin); found <= last && book.addresses[found].address < end; ++found) {
      NamedAddress& named = book.addresses[found];
      if (named.module != naming.module || named.function != nullptr) continue;
      named.begin = begin;
      named.function = table.names + symbol.st_name;
    }
  }
}

struct FunctionCopy {
  const char* from;
  char* into;
  std::size_t size;
};

void CopyGuarded(void* argument) {
  const FunctionCopy& copy = *static_cast<FunctionCopy*>(argument);
  std::size_t length = 0;
  for (; length + 1 < copy.size && copy.from[length] != '\0'; ++length) copy.into[length] = copy.from[length];
  copy.into[length] = '\0';
}

}  // namespace

void NameAddresses(AddressBook& book) {
  book.module_count = 0;
  for (std::size_t i = 0; i < book.count; ++i) {
    book.addresses[i].module = -1;
    book.addresses[i].function = nullptr;
  }
  Mappings mappings(book);
  ReadMappings(mappings);
  for (std::size_t i = 0; i < book.module_count; ++i) {
    Naming naming{&book, static_cast<int>(i)};
    if (book.modules[i].path[0] == '/' || std::strcmp(book.modules[i].path, "[vdso]") == 0) {
      RunGuarded(NameInModule, &naming);
    }
  }
}

void CopyFunction(const NamedAddress& named, char* into, std::size_t size) {
  into[0] = '\0';
  if (named.function == nullptr) return;
  FunctionCopy copy{named.function, into, size};
  if (!RunGuarded(CopyGuarded, &copy)) into[0] = '\0';
}

void NameFrames(const NativeStack& stack, NamedStack& named) {
  static NamedAddress addresses[kMaxFrames];
  for (std::size_t frame = 0; frame < stack.count; ++frame) addresses[frame].address = Inside(stack, frame);
  std::sort(addresses, addresses + stack.count,
            [](const NamedAddress& one, const NamedAddress& other) { return one.address < other.address; });
  const auto* const end =
      std::unique(addresses, addresses + stack.count,
                  [](const NamedAddress& one, const NamedAddress& other) { return one.address == other.address; });
  AddressBook book{addresses, static_cast<std::size_t>(end - addresses), named.modules, 0, kMaxFrames};
  NameAddresses(book);
  named.module_count = book.module_count;
  for (std::size_t frame = 0; frame < stack.count; ++frame) {
    const NamedAddress& found = addresses[FirstFrom(book, Inside(stack, frame))];
    FramePlace& place = named.places[frame];
    place.module = found.module;
    CopyFunction(found, place.function, sizeof place.function);
    place.into = stack.addresses[frame] - found.begin;
    if (place.module >= 0) place.offset = stack.addresses[frame] - named.modules[place.module].bias;
  }
}

const char* BaseName(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

}  // namespace fulldeck::agent
