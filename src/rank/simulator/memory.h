// Memory of the cards: bytes of the host that count as held on a card, up to what the card has.
//
// A card's storage is made over a storage of the host's (its block): the host's kernels work on the block, and both
// show the same bytes. Whoever changed the block's size or address calls Follow() on the card's storage. Threads: as
// torch's storages; the figures may be read from any.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>

#include "simulator/torch_minor.h"

namespace fulldeck::simulator {

// What torch asks for memory of one card; the card of the thread where `card` is negative. Throws
// c10::OutOfMemoryError. Lives as long as the process.
c10::DeviceAllocator& MemoryOf(int card);

// A card's storage over what a kernel of the host made. Throws c10::OutOfMemoryError when the card cannot hold it.
c10::Storage OnCard(c10::intrusive_ptr<c10::StorageImpl> host, int card);

// The host's storage under a card's. Of a storage that came from elsewhere (memory that somebody wrapped himself), a
// new one over the same bytes, which keeps the card's alive and cannot be resized.
c10::intrusive_ptr<c10::StorageImpl> HostStorage(const c10::Storage& storage);

// Gives the card's storage the address and size of its block again, and counts the bytes. Throws when the card cannot
// hold them; the storage is whole in every case.
void Follow(c10::StorageImpl& storage);

// What Tensor.untyped_storage().resize_() does: keeps the bytes that fit.
void Resize(c10::StorageImpl& storage, std::size_t bytes);

struct MemoryFigures {
  std::uint64_t held = 0;  // by this process
  std::uint64_t peak = 0;
  std::uint64_t allocations = 0;
};
MemoryFigures FiguresOf(int card);
void ResetPeak(int card);

// Host memory that the cards could copy from at once, if they copied. Known by address, as DataLoader(pin_memory=True)
// asks.
c10::Allocator& PinnedMemory();
bool IsPinned(const void* address);

}  // namespace fulldeck::simulator
