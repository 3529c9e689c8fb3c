// Allocations by size and by lifetime, in buckets of powers of two: which sizes a program asks for,
// and how long it keeps them. Counted by call site while the log is aggregated into a report, so
// that the log is read once and any --filter can choose afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/report.hpp"
#include "report/reading/reader.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report {

/// Allocations, and the bytes that served them. Sums saturate.
struct CountAndBytes {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;

    void add(const CountAndBytes& other);
    void subtract(const CountAndBytes& other);  ///< to 0 at the least
    bool operator==(const CountAndBytes&) const = default;
};

/// Sums by powers of two; buckets in which nothing is are left out.
class Histogram {
  public:
    struct Bucket {
        std::uint8_t power = 0;  ///< 0: the value 0; else values from 2^(power-1) below 2^power
        CountAndBytes sum;

        std::uint64_t from() const { return power == 0 ? 0 : std::uint64_t{1} << (power - 1); }
        /// None: there are no greater values.
        std::optional<std::uint64_t> below() const {
            return power == 64 ? std::nullopt : std::optional(std::uint64_t{1} << power);
        }
        bool operator==(const Bucket&) const = default;
    };

    /// May throw std::bad_alloc, without a change.
    void add(std::uint64_t value, const CountAndBytes& what);
    void add(const Histogram& other);

    /// Lowest first.
    const std::vector<Bucket>& buckets() const { return buckets_; }
    CountAndBytes sum() const;

  private:
    void add_to(std::uint8_t power, const CountAndBytes& what);

    std::vector<Bucket> buckets_;
};

/// Counts what a log has, by call site. Thread-safety: none.
class AllocationCounts {
  public:
    struct OfSite {
        Histogram sizes;      ///< by bytes that the program asked for
        Histogram lifetimes;  ///< of those that ended, by nanoseconds until the program's free
    };

    /// For read_report(): counts while the log is aggregated.
    LogSinkFactory sink_factory() {
        return [this](const std::string& log, trace::Aggregator& figures) {
            return follow(log, figures);
        };
    }
    /// The sink that `log` is read into; forgets other logs. This and `figures` must outlive it.
    std::unique_ptr<trace::RecordSink> follow(const std::string& log, trace::Aggregator& figures);

    /// The log that was read last; empty: none.
    const std::string& log() const { return log_; }
    /// By index into Report::sites.
    const std::vector<OfSite>& sites() const { return sites_; }
    /// The time from which on the log has all events, if some before are missing.
    const std::optional<std::uint64_t>& gap_end_ns() const { return gap_end_ns_; }

  private:
    class Sink;

    std::string log_;
    std::vector<OfSite> sites_;
    std::optional<std::uint64_t> gap_end_ns_;
};

/// Of the call sites of a device that a filter takes.
struct DeviceHistograms {
    const model::Device* device = nullptr;
    CountAndBytes all;  ///< of the whole recording, as memlab-report sites has them
    Histogram sizes;
    CountAndBytes size_unknown;  ///< made where the log has a gap
    Histogram lifetimes;
    CountAndBytes held;         ///< at the end of the recording
    CountAndBytes end_unknown;  ///< freed where the log has a gap, or by a call that was not seen
};

struct Histograms {
    std::vector<DeviceHistograms> devices;    ///< the used ones
    std::optional<std::uint64_t> gap_end_ns;  ///< as of AllocationCounts
    std::string moment;                       ///< moment_column() of the report
};

/// Of `report`, whose event log is `log`; `counts` are used if they are of this log, else it is
/// read. `taken`: for each site, whether it counts. `device`: only this GPU. The result points into
/// `report`. May throw std::bad_alloc.
Histograms histograms(const model::Report& report, const std::string& log, AllocationCounts& counts,
                      const std::vector<bool>& taken, const std::optional<std::uint64_t>& device);

}  // namespace memlab::report
