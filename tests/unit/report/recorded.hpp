// A recording as a log in a folder of its own, its report, and its state at any time, found in the
// obvious way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "report/reading/reader.hpp"
#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"
#include "tests/unit/trace/temporary_folder.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/log_writer.hpp"

namespace memlab::test {

class Recorded {
  public:
    explicit Recorded(Records records) : records_(std::move(records)) {
        auto created = LogWriter::create(log(), 0);
        REQUIRE(created.writer);
        feed(records_, *created.writer);
        created.writer->close();
        report::ReadResult read = report::read_report(log());
        REQUIRE(read.report);
        report = std::move(*read.report);
    }

    std::string log() const { return folder_ / "log.memlog"; }
    const Records& records() const { return records_; }

    /// Calls visit(state) after each record.
    template <typename Visit>
    void replay(Visit visit) const {
        Aggregator state;
        for (const AnyRecord& record : records_) {
            feed(record, state);
            visit(std::as_const(state));
        }
    }

    model::Report report;

  private:
    TemporaryFolder folder_;
    Records records_;
};

/// The time of a record; 0 without one.
inline std::uint64_t time_of(const AnyRecord& record) {
    return std::visit(
        [](const auto& each) -> std::uint64_t {
            if constexpr (requires { each.time_ns; }) {
                return each.time_ns;
            } else {
                return 0;
            }
        },
        record);
}

}  // namespace memlab::test
