#include "trace/aggregate/ledger.hpp"

#include <algorithm>

namespace memlab::trace {
namespace {

/// More than any device has. Sums of all rows stay in 63 bits.
constexpr std::uint64_t max_bytes = std::uint64_t{1} << 49;

std::uint64_t bounded(std::uint64_t bytes) {
    return std::min(bytes, max_bytes);
}

std::uint64_t saturating_sum(std::uint64_t a, std::uint64_t b) {
    return a + std::min(b, ~a);
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
               row.object == entry.object && !row.estimated;
    };
    auto found = std::find_if(rows_.begin(), rows_.end(), [&](const LedgerRow& row) {
        return same_site(row) && !row.ended && row.context == entry.context;
    });
    if (found == rows_.end()) {
        found = std::find_if(rows_.begin(), rows_.end(),
                             [&](const LedgerRow& row) { return same_site(row) && row.ended; });
    }
    // Each kind may need one for all further sites, and one for what is estimated.
    const std::size_t kinds_left = 2 * static_cast<std::size_t>(ledger_kind_count);
    if (found == rows_.end() && rows_.size() >= max_rows - kinds_left) {
        found = std::find_if(rows_.begin(), rows_.end(), [&](const LedgerRow& row) {
            return row.kind == entry.kind && row.api == 0 && row.stack == 0 && row.object == 0 &&
                   !row.estimated;
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

LedgerRow& Ledger::estimated_row(LedgerKind kind) {
    const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const LedgerRow& row) {
        return row.kind == kind && row.estimated;
    });
    return found != rows_.end() ? *found
                                : rows_.emplace_back(LedgerRow{.kind = kind, .estimated = true});
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
        // Of the estimated ones nobody knows the context; they end with the last.
        if (row.estimated ? entry.after == 0 : row.context == entry.context) {
            row.ended = !row.estimated;
            row.bytes = 0;
        }
    }
    if (entry.after == 0) {
        // The last context: the device cannot be queried any more, and what ran there has ended.
        unattributed_ -= static_cast<std::int64_t>(latest_.growth);
        latest_.growth = 0;
    }
}

/// What the calls since the latest sample that were not measured took of the bytes that the figure
/// grew by meanwhile, by the means of their kinds.
std::uint64_t Ledger::estimate(std::uint64_t grown) {
    std::array<double, static_cast<std::size_t>(ledger_kind_count)> wanted{};
    double all = 0;
    for (std::size_t kind = 0; kind < means_.size(); ++kind) {
        const LedgerMean& mean = means_[kind];
        if (mean.takers > mean.returns && mean.calls != 0) {
            wanted[kind] = static_cast<double>(mean.takers - mean.returns) *
                           static_cast<double>(mean.bytes) / static_cast<double>(mean.calls);
            all += wanted[kind];
        }
    }
    const double share = all > static_cast<double>(grown) ? static_cast<double>(grown) / all : 1;
    std::uint64_t estimated = 0;
    for (std::size_t kind = 0; kind < means_.size(); ++kind) {
        const std::uint64_t bytes =
            std::min(static_cast<std::uint64_t>(wanted[kind] * share), grown - estimated);
        if (bytes != 0) {
            LedgerRow& row = estimated_row(static_cast<LedgerKind>(kind));
            row.count = saturating_sum(row.count, means_[kind].takers - means_[kind].returns);
            row.bytes = bounded(row.bytes + bytes);
            row.max_bytes = std::max(row.max_bytes, row.bytes);
            estimated += bytes;
        }
    }
    return estimated;
}

/// The rows have so much more than there is: memory that went back in calls that were not measured,
/// or estimates that were too high. Returns what was taken from them.
std::uint64_t Ledger::correct(std::uint64_t missing) {
    std::uint64_t left = missing;
    for (const bool estimated : {true, false}) {
        for (LedgerRow& row : rows_) {
            if (estimated ? row.estimated
                          : means_[static_cast<std::size_t>(row.kind)].returns != 0) {
                const std::uint64_t part = std::min(row.bytes, left);
                row.bytes -= part;
                left -= part;
            }
        }
    }
    return missing - left;
}

void Ledger::on(const LedgerEntry& entry, const RecordedBytes& recorded) {
    kept_ = true;
    std::uint64_t& skipped = skipped_[static_cast<std::size_t>(entry.kind)];
    skipped = saturating_sum(skipped, entry.skipped);
    LedgerMean& mean = means_[static_cast<std::size_t>(entry.kind)];
    // Earlier memlabs counted in records with figures, and not which calls took nothing: there is
    // no mean then.
    if (entry.after == 0 && !entry.ended) {
        const std::uint64_t returns = std::min(entry.skipped_returns, entry.skipped);
        mean.takers = saturating_sum(mean.takers, entry.skipped - returns);
        mean.returns = saturating_sum(mean.returns, returns);
        mean.calls = saturating_sum(mean.calls, entry.unchanged);
    }
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
    if (entry.uncertain && sampled_) {
        // What others took meanwhile may be in it: no more than what the figure grew by,
        // unexplained.
        taken = std::min(taken, unattributed(entry.after, recorded) - unattributed_);
    }
    if (taken <= 0) {
        return;
    }
    if (entry.before != 0) {
        mean.calls = saturating_sum(mean.calls, 1);
        mean.bytes = saturating_sum(mean.bytes, static_cast<std::uint64_t>(taken));
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
    std::int64_t now = unattributed(sample.used, recorded);
    std::int64_t grown = first ? 0 : now - unattributed_;
    if (grown > 0) {
        const auto estimated =
            static_cast<std::int64_t>(estimate(static_cast<std::uint64_t>(grown)));
        now -= estimated;
        grown -= estimated;
    } else if (now < 0 && grown < 0) {
        now +=
            static_cast<std::int64_t>(correct(static_cast<std::uint64_t>(std::min(-now, -grown))));
    }
    for (LedgerMean& mean : means_) {
        mean.takers = mean.returns = 0;
    }
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
