// The ledger of a GPU: what took its memory beside the allocations, as far as it was measured.
//
// Each measured call changes its row by the difference that it made. What neither a row nor an
// allocation explains is unattributed. It changes only between measured calls. Where it grew while
// the process submitted work, code was loaded at its first launch, or the driver took memory to run
// it (`growth`); the remainder is the rest: other processes, and what was there before the first
// sample. So all parts together are the driver's own figure at each sample.
//
// Calls that were not measured have a row of their kind (`estimated`): the mean of the measured
// ones, those that took nothing included, for each, but together no more than what the figure grew
// by, unexplained, between the two samples around them.
//
// Rows and their bytes are kept for the sample at which the GPU had most memory in use, too. The
// number of rows is bounded; beyond it all further call sites of a kind share one.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "trace/record.hpp"

namespace memlab::trace {

/// What one call site took for one kind of thing.
struct LedgerRow {
    LedgerKind kind = LedgerKind::context;
    std::uint32_t api = 0;
    std::uint32_t stack = 0;
    std::uint32_t object = 0;   ///< index into strings: the file that code came from
    std::uint64_t context = 0;  ///< the driver's handle
    bool ended = false;         ///< with its context; the next one of the same site takes the row
    bool uncertain = false;     ///< other memory changed during a measured call
    bool whole = false;         ///< includes what was in use before the process could ask
    bool estimated = false;     ///< of calls that were not measured: there is no site
    std::uint64_t count = 0;    ///< measured calls that took memory; estimated: calls
    std::uint64_t bytes = 0;
    std::uint64_t max_bytes = 0;

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive.choice(self.kind, last_ledger_kind);
        archive(self.api, self.stack, self.object, self.context, self.ended, self.uncertain,
                self.whole, self.count, self.bytes, self.max_bytes);
        if (archive.version() >= 7) {
            archive(self.estimated);
        }
    }
};

/// What there is to estimate the calls of a kind by.
struct LedgerMean {
    std::uint64_t calls = 0;  ///< measured that could take memory
    std::uint64_t bytes = 0;  ///< that they took
    /// Calls since the latest sample that were not measured: those that may have taken memory, and
    /// those that gave some back.
    std::uint64_t takers = 0;
    std::uint64_t returns = 0;

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.calls, self.bytes, self.takers, self.returns);
    }
};

/// What the allocations of the process take of a GPU, as the recording has it.
struct RecordedBytes {
    std::uint64_t reserved = 0;       ///< the curve
    std::uint64_t pool_reserved = 0;  ///< the part of it that is memlab's pool
    std::uint64_t pool_active = 0;
    std::uint64_t segments = 0;  ///< the part of it that is segments of allocators seen from inside
    std::array<std::uint64_t, static_cast<std::size_t>(memory_kind_count)> kinds{};  ///< live

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.reserved, self.pool_reserved, self.pool_active, self.segments, self.kinds);
    }

    std::uint64_t of(MemoryKind kind) const { return kinds[static_cast<std::size_t>(kind)]; }
};

/// A sample, and what explains it.
struct LedgerMoment {
    std::uint64_t time_ns = 0;
    std::uint64_t used = 0;
    std::uint64_t pools = 0;  ///< DeviceSample::pools
    std::uint64_t growth = 0;
    RecordedBytes recorded;
    std::vector<std::uint64_t> rows;  ///< bytes of each; rows added later have none

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.time_ns, self.used, self.pools, self.growth, self.recorded, self.rows);
    }
};

/// What NCCL said last of a communicator, and the most that it ever had.
struct Communicator {
    CommunicatorMemory latest;
    std::uint64_t max_total = 0;

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive.record(self.latest);
        archive(self.max_total);
    }
};

/// Thread-safety: none. May throw std::bad_alloc.
class Ledger {
  public:
    static constexpr std::size_t max_rows = 4096;
    /// Those of later communicators are passed over.
    static constexpr std::size_t max_communicators = 1024;

    void on(const LedgerEntry& entry, const RecordedBytes& recorded);
    void on(const DeviceSample& sample, const RecordedBytes& recorded);
    void on(const Witness& witness);
    void on(const CommunicatorMemory& memory);

    const std::vector<LedgerRow>& rows() const { return rows_; }
    /// False where nothing was to be measured: by option, or by a memlab that did not measure.
    bool kept() const { return kept_; }
    /// Calls that were not measured, by LedgerKind.
    const auto& skipped() const { return skipped_; }
    /// The sample with most memory in use, the first of several; none: there was no sample.
    const std::optional<LedgerMoment>& peak() const { return peak_; }
    /// The first and the latest that NVML said; none: it was not asked.
    const std::vector<Witness>& witnesses() const { return witnesses_; }
    /// In the order in which they were first told of.
    const std::vector<Communicator>& communicators() const { return communicators_; }
    /// The latest sample.
    std::optional<LedgerMoment> latest() const;

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.rows_);
        // Kinds are added behind the others.
        const std::size_t kinds = archive.version() >= 7 ? self.skipped_.size() : 8;
        for (std::size_t kind = 0; kind < kinds; ++kind) {
            archive(self.skipped_[kind]);
        }
        archive(self.peak_, self.latest_, self.sampled_, self.kept_, self.unattributed_);
        std::size_t witnesses = self.witnesses_.size();
        archive(witnesses);
        if constexpr (Archive::reading) {
            self.witnesses_.resize(std::min<std::size_t>(witnesses, 2));
        }
        for (auto& witness : self.witnesses_) {
            archive.record(witness);
        }
        if (archive.version() >= 4) {
            archive(self.communicators_);
        }
        if (archive.version() >= 7) {
            archive(self.means_);
        }
    }
    /// Whether a restored state is consistent.
    bool valid(std::size_t strings, std::size_t stacks) const;

  private:
    std::int64_t unattributed(std::uint64_t used, const RecordedBytes& recorded) const;
    LedgerRow& row_of(const LedgerEntry& entry);
    LedgerRow& estimated_row(LedgerKind kind);
    void give_back(const LedgerEntry& entry, std::uint64_t bytes);
    std::uint64_t estimate(std::uint64_t grown);
    std::uint64_t correct(std::uint64_t missing);
    void end_context(const LedgerEntry& entry);

    std::vector<LedgerRow> rows_;
    std::array<std::uint64_t, static_cast<std::size_t>(ledger_kind_count)> skipped_{};
    std::array<LedgerMean, static_cast<std::size_t>(ledger_kind_count)> means_{};
    std::optional<LedgerMoment> peak_;
    std::vector<Witness> witnesses_;  ///< at most two
    std::vector<Communicator> communicators_;
    LedgerMoment latest_;  ///< without rows: rows_ has the current ones
    bool sampled_ = false;
    bool kept_ = false;
    std::int64_t unattributed_ = 0;  ///< at the latest sample
};

}  // namespace memlab::trace
