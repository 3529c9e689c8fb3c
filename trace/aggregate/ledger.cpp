#include "trace/aggregate/ledger.hpp"

#include <algorithm>

namespace memlab::trace {
namespace {

/// More than any device has. Sums of all rows stay in 63 bits.
constexpr std::uint64_t max_bytes = std::uint64_t{1} << 49;

std::uint64_t bounded(std::uint64_t bytes) {
    return std::min(bytes, max_bytes);
}

/// The driver's pools hold what was allocated from them and more; where their size is known it
/// counts instead of the allocations.
std::int64_t process_bytes(const RecordedBytes& recorded, std::uint64_t pools) {
    const std::uint64_t served =
        bounded(recorded.of(MemoryKind::async_pool)) + bounded(recorded.of(MemoryKind::graph));
    return static_cast<std::int64_t>(bounded(recorded.reserved)) +
           (pools == 0
                ? 0
                : static_cast<std::int64_t>(bounded(pools)) - static_cast<std::int64_t>(served));
}

}  // namespace

/// What of `used` neither the allocations nor a row explains; below 0 where an allocation is not
/// resident yet.
std::int64_t Ledger::unattributed(std::uint64_t used, const RecordedBytes& recorded) const {
    std::int64_t bytes = static_cast<std::int64_t>(bounded(used)) -
                         process_bytes(recorded, sampled_ ? latest_.pools : 0);
    for (const LedgerRow& row : rows_) {
        bytes -= static_cast<std::int64_t>(row.bytes);
    }
    return bytes;
}

LedgerRow& Ledger::row_of(const LedgerEntry& entry) {
    const auto same_site = [&](const LedgerRow& row) {
        return row.kind == entry.kind && row.api == entry.api && row.stack == entry.stack &&
               row.object == entry.object;
    };
    auto found = std::find_if(rows_.begin(), rows_.end(), [&](const LedgerRow& row) {
        return same_site(row) && !row.ended && row.context == entry.context;
    });
    if (found == rows_.end()) {
        found = std::find_if(rows_.begin(), rows_.end(),
                             [&](const LedgerRow& row) { return same_site(row) && row.ended; });
    }
    const std::size_t kinds_left = static_cast<std::size_t>(ledger_kind_count);
    if (found == rows_.end() && rows_.size() >= max_rows - kinds_left) {
        found = std::find_if(rows_.begin(), rows_.end(), [&](const LedgerRow& row) {
            return row.kind == entry.kind && row.api == 0 && row.stack == 0 && row.object == 0;
        });
        if (found == rows_.end()) {
            rows_.push_back({.kind = entry.kind});
            return rows_.back();
        }
        return *found;
    }
    if (found == rows_.end()) {
        rows_.push_back({.kind = entry.kind,
                         .api = entry.api,
                         .stack = entry.stack,
                         .object = entry.object,
                         .context = entry.context});
        return rows_.back();
    }
    found->ended = false;
    found->context = entry.context;
    return *found;
}

/// Takes it from the rows of that kind: of the same object and context first, then of the same
/// context, then of any; the largest first. A module goes with the kernels that were loaded later.
void Ledger::give_back(const LedgerEntry& entry, std::uint64_t bytes) {
    for (int pass = 0; pass < 3 && bytes != 0; ++pass) {
        std::vector<LedgerRow*> from;
        for (LedgerRow& row : rows_) {
            const bool same_kind = row.kind == entry.kind || (row.kind == LedgerKind::kernel &&
                                                              entry.kind == LedgerKind::module);
            if (same_kind && row.bytes != 0 && (pass > 0 || row.object == entry.object) &&
                (pass > 1 || row.context == entry.context)) {
                from.push_back(&row);
            }
        }
        std::stable_sort(from.begin(), from.end(),
                         [](const auto* a, const auto* b) { return a->bytes > b->bytes; });
        for (LedgerRow* row : from) {
            const std::uint64_t part = std::min(row->bytes, bytes);
            row->bytes -= part;
            bytes -= part;
            row->uncertain = row->uncertain || entry.uncertain;
        }
    }
}

void Ledger::end_context(const LedgerEntry& entry) {
    for (LedgerRow& row : rows_) {
        if (row.context == entry.context) {
            row.ended = true;
            row.bytes = 0;
        }
    }
    if (entry.after == 0) {
        // The last context: the device cannot be queried any more, and what ran there has ended.
        unattributed_ -= static_cast<std::int64_t>(latest_.growth);
        latest_.growth = 0;
    }
}

void Ledger::on(const LedgerEntry& entry, const RecordedBytes& recorded) {
    kept_ = true;
    std::uint64_t& skipped = skipped_[static_cast<std::size_t>(entry.kind)];
    skipped += std::min(entry.skipped, ~skipped);
    if (entry.ended) {
        end_context(entry);
        return;
    }
    if (entry.after == 0) {
        return;
    }
    if (entry.before > entry.after) {
        give_back(entry, bounded(entry.before) - bounded(entry.after));
        return;
    }
    std::int64_t taken = static_cast<std::int64_t>(bounded(entry.after)) -
                         static_cast<std::int64_t>(bounded(entry.before));
    if (entry.before == 0) {
        taken = unattributed(entry.after, recorded) - (sampled_ ? unattributed_ : 0);
    }
    if (taken <= 0) {
        return;
    }
    LedgerRow& row = row_of(entry);
    ++row.count;
    row.bytes = bounded(row.bytes + static_cast<std::uint64_t>(taken));
    row.max_bytes = std::max(row.max_bytes, row.bytes);
    row.uncertain = row.uncertain || entry.uncertain;
    row.whole = row.whole || entry.before == 0;
}

void Ledger::on(const DeviceSample& sample, const RecordedBytes& recorded) {
    const bool first = !sampled_;
    sampled_ = true;
    latest_.pools = bounded(sample.pools);
    const std::int64_t now = unattributed(sample.used, recorded);
    const std::int64_t grown = first ? 0 : now - unattributed_;
    if (grown > 0 && sample.worked) {
        latest_.growth += static_cast<std::uint64_t>(grown);
    }
    latest_.growth =
        std::min(latest_.growth, static_cast<std::uint64_t>(std::max<std::int64_t>(now, 0)));
    unattributed_ = now;
    latest_.time_ns = sample.time_ns;
    latest_.used = sample.used;
    latest_.recorded = recorded;
    if (!peak_ || sample.used > peak_->used) {
        peak_ = latest();
    }
}

void Ledger::on(const Witness& witness) {
    if (witnesses_.size() == 2) {
        witnesses_.pop_back();
    }
    witnesses_.push_back(witness);
}

void Ledger::on(const CommunicatorMemory& memory) {
    auto found = std::find_if(
        communicators_.begin(), communicators_.end(),
        [&](const Communicator& each) { return each.latest.communicator == memory.communicator; });
    if (found == communicators_.end()) {
        if (communicators_.size() == max_communicators) {
            return;
        }
        found = communicators_.insert(found, Communicator());
    }
    found->latest = memory;
    found->max_total = std::max(found->max_total, memory.total);
}

std::optional<LedgerMoment> Ledger::latest() const {
    if (!sampled_) {
        return std::nullopt;
    }
    LedgerMoment moment = latest_;
    moment.rows.reserve(rows_.size());
    for (const LedgerRow& row : rows_) {
        moment.rows.push_back(row.bytes);
    }
    return moment;
}

bool Ledger::valid(std::size_t strings, std::size_t stacks) const {
    const auto is_bounded = [](std::uint64_t bytes) { return bytes <= max_bytes; };
    constexpr std::int64_t max_unattributed = std::int64_t{1} << 62;
    return rows_.size() <= max_rows && (!peak_ || peak_->rows.size() <= rows_.size()) &&
           latest_.rows.empty() && is_bounded(latest_.pools) &&
           unattributed_ >= -max_unattributed && unattributed_ <= max_unattributed &&
           latest_.growth <= static_cast<std::uint64_t>(max_unattributed) &&
           communicators_.size() <= max_communicators &&
           std::all_of(witnesses_.begin(), witnesses_.end(),
                       [&](const Witness& witness) {
                           return witness.dmem.group < strings && witness.nvml.group < strings;
                       }) &&
           std::all_of(rows_.begin(), rows_.end(), [&](const LedgerRow& row) {
               return row.api < strings && row.object < strings && row.stack < stacks &&
                      is_bounded(row.bytes);
           });
}

}  // namespace memlab::trace
