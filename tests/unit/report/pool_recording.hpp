// Writes a small recording of one GPU with known blocks as a log and reads it as a report.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "model/report.hpp"
#include "report/reading/reader.hpp"
#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"
#include "tests/unit/trace/temporary_folder.hpp"
#include "trace/log_writer.hpp"

namespace memlab::test {

/// Addresses and sizes are in MiB, addresses from `base`. Stacks 1 and 2 are the Python functions
/// "keep" (line 5) and "work" (line 15) of /opt/app/model.py. Each event takes 1 ns.
class PoolRecording {
  public:
    static constexpr std::uint64_t mib = 1 << 20;
    static constexpr std::uint64_t base = 0x7f0000000000;

    PoolRecording() {
        records_.emplace_back(ProcessInfo{.pid = 42, .executable = "/opt/app/train"});
        records_.emplace_back(StringDef{1, "cuMemAlloc_v2"});
        records_.emplace_back(StringDef{2, "/opt/app/model.py"});
        records_.emplace_back(StringDef{3, "keep"});
        records_.emplace_back(StringDef{4, "work"});
        records_.emplace_back(StringDef{5, "step"});
        records_.emplace_back(StringDef{6, "Python's garbage collector"});
        records_.emplace_back(DeviceInfo{0, "GPU", "GPU-0", 1 << 30, 13000});
        records_.emplace_back(ContextInfo{1, 0, true});
        records_.emplace_back(ContextInfo{2, 0, false});
        records_.emplace_back(PythonFrameDef{1, 3, 2, 5, 1});
        records_.emplace_back(PythonFrameDef{2, 4, 2, 15, 10});
        records_.emplace_back(StackDef{1, false, {{0, 0, 1}}});
        records_.emplace_back(StackDef{2, false, {{0, 0, 2}}});
    }

    PoolRecording& segment(EventType type, std::uint64_t at, std::uint64_t size,
                           std::uint32_t context = 1) {
        add(type, at * mib, size * mib, 0, context);
        return *this;
    }
    /// `unused`: bytes of rounding.
    PoolRecording& alloc(std::uint64_t at, std::uint64_t size, std::uint32_t stack,
                         std::uint64_t unused = 0) {
        add(EventType::alloc, at * mib, size * mib, stack, 1);
        std::get<Event>(records_.back()).requested -= unused;
        return *this;
    }
    PoolRecording& give_back(std::uint64_t at, std::uint64_t size, bool completed = true) {
        add(EventType::free_requested, at * mib, size * mib, 0, 1);
        if (completed) {
            add(EventType::free_completed, at * mib, size * mib, 0, 1);
        }
        return *this;
    }
    /// Given back by a garbage collector.
    PoolRecording& collect(std::uint64_t at, std::uint64_t size) {
        add(EventType::free_requested, at * mib, size * mib, 0, 1);
        std::get<Event>(records_.back()).name = 6;
        add(EventType::free_completed, at * mib, size * mib, 0, 1);
        return *this;
    }
    PoolRecording& oom(std::uint64_t requested) {
        OomEvent event;
        event.time_ns = ++now_;
        event.context = 1;
        event.requested = requested;
        records_.emplace_back(event);
        return *this;
    }
    PoolRecording& lose(std::uint32_t context) {
        records_.emplace_back(ContextLost{++now_, context});
        return *this;
    }
    /// The program names the block "step"; `detail`: a string of these, or 0.
    PoolRecording& label(std::uint64_t at, std::uint32_t detail = 0) {
        Event event;
        event.type = EventType::label;
        event.time_ns = ++now_;
        event.address = base + at * mib;
        event.api = detail;
        event.name = 5;
        records_.emplace_back(event);
        return *this;
    }
    /// A mark of the name "step".
    PoolRecording& step() {
        add(EventType::mark, 0, 0, 0, 0);
        Event& mark = std::get<Event>(records_.back());
        mark.address = 0;
        mark.name = 5;
        return *this;
    }
    PoolRecording& kernel(std::uint64_t begin_ns, std::uint64_t end_ns) {
        records_.emplace_back(Work{.start_ns = begin_ns, .end_ns = end_ns});
        return *this;
    }
    PoolRecording& wait(std::uint64_t nanoseconds) {
        now_ += nanoseconds;
        return *this;
    }
    /// The log ends behind the events so far, for lack of room; the program goes on to its end.
    PoolRecording& stop() {
        constexpr std::uint64_t smallest = std::uint64_t{64} << 10;
        log_limit_ = smallest;
        return *this;
    }
    std::uint64_t now() const { return now_; }

    /// Writes the log and reads the report.
    const memlab::model::Report& read() {
        ++logs_;
        auto created = LogWriter::create(log(), log_limit_);
        REQUIRE(created.writer);
        feed(records_, *created.writer);
        while (log_limit_ != 0 && created.writer->events_dropped() == 0) {
            created.writer->on(
                Event{.type = EventType::mark, .context = 1, .name = 5, .time_ns = ++now_});
        }
        created.writer->on(End{++now_, EndKind::exit, 0, ""});
        created.writer->close();
        memlab::report::ReadResult read = memlab::report::read_report(log());
        REQUIRE(read.report);
        report = std::move(*read.report);
        return report;
    }
    /// The log that was written last.
    std::string log() const { return folder_ / ("log" + std::to_string(logs_) + ".memlog"); }

    memlab::model::Report report;

  private:
    void add(EventType type, std::uint64_t at, std::uint64_t size, std::uint32_t stack,
             std::uint32_t context) {
        Event event;
        event.type = type;
        event.origin = Origin::pool;
        event.context = context;
        event.time_ns = ++now_;
        event.address = base + at;
        event.requested = type == EventType::alloc ? size : 0;
        event.size = size;
        event.stack = stack;
        event.api = stack == 0 ? 0 : 1;
        records_.emplace_back(event);
    }

    TemporaryFolder folder_;
    Records records_;
    std::uint64_t now_ = 0;
    std::uint64_t log_limit_ = 0;
    int logs_ = 0;
};

}  // namespace memlab::test
