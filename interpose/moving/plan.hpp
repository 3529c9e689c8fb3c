// What of the process's device memory can leave, what stays, and why.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "interpose/memory/memory.hpp"
#include "interpose/moving/driver_engine.hpp"
#include "interpose/moving/program_handles.hpp"

namespace memlab::interpose {

/// Device memory of this process by what becomes of it, in bytes.
struct Movable {
    std::uint64_t can_move = 0;  ///< in use, of the pool's mapped memory
    std::uint64_t stays = 0;     ///< all else that was allocated
    std::string staying;         ///< that, as staying_text() says it; empty: nothing

    bool mostly_moves() const { return can_move / 9 >= stays; }  ///< 90 %
};

/// Of the device (-1: of all). May throw std::bad_alloc.
Movable movable_memory(Memory& memory, CUdevice device);

/// The chunks of a context that leave, and the context, which cannot end meanwhile.
struct LeavingContext {
    Context* context = nullptr;
    std::vector<VmmPages::MovableChunk> chunks;
    std::uint64_t bytes = 0;
};

/// Contexts whose pages are being moved: ends that for all of them at its end.
class PagesInMove {
  public:
    PagesInMove() = default;
    ~PagesInMove();
    PagesInMove(const PagesInMove&) = delete;
    PagesInMove& operator=(const PagesInMove&) = delete;

    /// Begins to move those of a context that is not ending; false: it is. Returns its chunks. May
    /// throw std::bad_alloc.
    bool add(Context& context, std::vector<VmmPages::MovableChunk>* chunks, std::uint64_t* unknown);

  private:
    struct One {
        explicit One(Context& of)
            : context(of), use(of.end_gate(), EndGate::max_wait_ns, EndGate::Kind::lasting) {}
        Context& context;
        EndGate::Use use;
    };
    std::vector<std::unique_ptr<One>> all_;
};

/// Which chunks of the contexts leave where so much of each device is kept: all that may, those of
/// the highest addresses first. *kept: what stays, by device. May throw std::bad_alloc.
std::vector<LeavingContext> choose_leaving(Memory& memory, CUdevice device,
                                           std::uint64_t kept_bytes, PagesInMove& moving,
                                           std::vector<std::uint64_t>* kept);

/// The program's own memory while it is being moved, and a context of each of these devices, which
/// cannot end meanwhile.
class ProgramInMove {
  public:
    ProgramInMove() { program_handles().begin_move(); }
    ~ProgramInMove();
    ProgramInMove(const ProgramInMove&) = delete;
    ProgramInMove& operator=(const ProgramInMove&) = delete;

    /// The program's, or else the device's primary one. May throw std::bad_alloc.
    void use_contexts(Memory& memory, const std::vector<CUdevice>& devices);
    const ProgramHandles::Contexts& contexts() const { return contexts_; }

  private:
    ProgramHandles::Contexts contexts_;
    std::vector<std::unique_ptr<EndGate::Use>> uses_;
    std::vector<CUdevice> retained_;
};

/// "0.44 s"
std::string seconds_text(std::uint64_t ns);

/// Records what is away of each device now, where anything ever was; `by_driver`: of devices whose
/// memory is away, or was, by the driver's checkpoint.
void record_moves(Memory& memory, const std::vector<CheckpointedMemory>& by_driver,
                  bool is_away_by_driver) noexcept;

}  // namespace memlab::interpose
