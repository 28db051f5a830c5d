// Memory of the cards: host memory that counts as held on a card, up to the card's size.
//
// A card's storage wraps a CPU storage (its block): the CPU kernels work on the block, and both refer to the same
// bytes. After a change of the block's size or address, Follow() must be called on the card's storage. Threads: as
// torch's storages; the counters may be read from any thread.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>

#include "simulator/torch_minor.h"

namespace fulldeck::simulator {

// torch's allocator for one card; for the thread's current card if `card` is negative. Allocation throws
// c10::OutOfMemoryError. Never destroyed.
c10::DeviceAllocator& MemoryOf(int card);

// A card's storage over the result of a CPU kernel. Throws c10::OutOfMemoryError if it does not fit on the card.
c10::Storage OnCard(c10::intrusive_ptr<c10::StorageImpl> host, int card);

// The CPU storage under a card's storage. For a storage from elsewhere (memory wrapped by other code), a new one over
// the same bytes, which keeps the card's storage alive and cannot be resized.
c10::intrusive_ptr<c10::StorageImpl> HostStorage(const c10::Storage& storage);

// Updates the card's storage to the address and size of its block, and counts the bytes. Throws if the card cannot hold
// them; the storage is valid in either case.
void Follow(c10::StorageImpl& storage);

// Implements Tensor.untyped_storage().resize_(): keeps the bytes that fit.
void Resize(c10::StorageImpl& storage, std::size_t bytes);

struct MemoryFigures {
  std::uint64_t held = 0;  // by this process
  std::uint64_t peak = 0;
  std::uint64_t allocations = 0;
};
MemoryFigures FiguresOf(int card);
void ResetPeak(int card);

// Host memory that is marked as pinned, by address, for DataLoader(pin_memory=True). The cards do not need it.
c10::Allocator& PinnedMemory();
bool IsPinned(const void* address);

}  // namespace fulldeck::simulator
