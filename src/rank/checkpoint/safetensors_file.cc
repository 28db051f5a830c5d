#include "checkpoint/safetensors_file.h"

#include <algorithm>
#include <utility>

#include "checkpoint/quoting.h"

namespace fulldeck::checkpoint {

using base::Error;
using base::Result;

Result<SafetensorsFile> SafetensorsFile::Open(Files& files, const std::string& path) {
  auto file = files.Open(path);
  if (!file) return file.error();
  const auto named = [&](const Error& error) { return Error{Quoted(path) + ": " + error.message, error.system_error}; };
  const std::uint64_t size = (*file)->size();
  std::string eight(static_cast<std::size_t>(std::min<std::uint64_t>(size, 8)), '\0');
  if (auto read = (*file)->ReadAt(0, eight.data(), eight.size()); !read) return read.error();
  auto length = ParseHeaderLength(eight, size);
  if (!length) return named(length.error());
  std::string json(static_cast<std::size_t>(*length), '\0');
  if (auto read = (*file)->ReadAt(8, json.data(), json.size()); !read) return read.error();
  auto header = ParseHeader(json, size);
  if (!header) return named(header.error());
  return SafetensorsFile{std::move(*header), std::move(*file)};
}

Result<void> SafetensorsFile::Read(std::size_t tensor, void* into) const {
  const TensorEntry& entry = header.tensors[tensor];
  return file->ReadAt(header.data_begin + entry.begin, into, static_cast<std::size_t>(entry.bytes()));
}

}  // namespace fulldeck::checkpoint
