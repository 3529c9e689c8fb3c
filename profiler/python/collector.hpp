// Tells whether the calling thread is inside CPython's cyclic garbage collector.
//
// The interpreter says that its collector runs (`collecting` of struct _gc_runtime_state), but not
// on which thread; and that thread need not hold the GIL, since finalizers release it: those of
// PyTorch's tensors do. The thread is identified by the list of objects to be freed: a doubly
// linked ring whose head is a local variable of the collector, so on the stack of the thread that
// collects. While the mark is set the calling thread's stack is searched for such a head, and only
// one whose links are consistent counts. So a thread that frees at the same time is never taken for
// the collector, and no symbols are needed. The object that is taken from the list last leaves it
// empty: what its destructor frees is not recognized.
//
// The mark is found by the shape of the structure around it, which points into itself, so the
// offset in the interpreter's state, which differs from version to version, is not needed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace memlab::profiler::python {

class Collector {
  public:
    /// Finds the collector of the interpreter, a 3.`minor`, whose state lies between `state` and
    /// `end`; `list`: PyList_Type. False if it is not there: it then never runs. Reads all of that
    /// memory.
    bool find(int minor, const void* state, const void* end, const void* list);

    /// The collector is taken not to run from here on.
    void forget() { collecting_.store(&never_, std::memory_order_release); }

    /// Whether it runs, on whatever thread. Two loads.
    bool runs() const {
        return __atomic_load_n(collecting_.load(std::memory_order_acquire), __ATOMIC_RELAXED) != 0;
    }

    /// Whether it runs on the calling thread, within the part of the stack that ends at `sp`. Takes
    /// no lock, allocates nothing. For when runs().
    static bool is_on_stack(std::uintptr_t sp);

  private:
    static constexpr std::int32_t never_ = 0;
    std::atomic<const std::int32_t*> collecting_{&never_};
};

}  // namespace memlab::profiler::python
