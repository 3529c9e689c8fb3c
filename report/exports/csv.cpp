// Exports allocations and frees as the log of RMM's logging_resource_adaptor, for its readers
// (RMM's replay benchmark, scripts): Thread,Time,Action,Pointer,Size,Stream. Actions are allocate,
// free and "allocate failure", times are local wall clock with microseconds, pointers as printf's
// %p, streams as a C++ stream prints a pointer.
//
// Of a stretch what was live at its start is allocated then, so that every free has its allocation.
//
// Only memory that a device resource can serve: device, managed, async_pool and graph. Sizes are
// requested sizes.
#include <array>
#include <cstdio>
#include <ctime>
#include <string>

#include "report/exports/formats.hpp"
#include "report/exports/lifetime_sink.hpp"
#include "report/exports/output.hpp"
#include "report/exports/site_choice.hpp"
#include "report/reading/read_ahead.hpp"

namespace memlab::report::exports {

using trace::MemoryKind;

namespace {

bool is_of_a_device_resource(MemoryKind kind) {
    return kind == MemoryKind::device || kind == MemoryKind::managed ||
           kind == MemoryKind::async_pool || kind == MemoryKind::graph ||
           kind == MemoryKind::suballocation;
}

class Csv final : public LifetimeSink {
  public:
    Csv(const Input& input, model::ByteSink& sink)
        : LifetimeSink(input.stretch), choice_(input), out_(sink) {
        out_ << "Thread,Time,Action,Pointer,Size,Stream\n";
    }

    bool written() { return out_.finish(); }

  protected:
    void entered() override {
        for_each_live([this](const Allocation& allocation) {
            if (!allocation.pending) {
                allocated(allocation);
            }
        });
    }
    void allocated(const Allocation& allocation) override {
        const trace::Event& event = allocation.event;
        if (shows(event)) {
            line(event.thread, "allocate", hexadecimal(event.address), event.requested,
                 event.stream);
        }
    }
    void freed(const Allocation& allocation, const trace::Event* by) override {
        const trace::Event& event = allocation.event;
        if (shows(event)) {
            line(by == nullptr ? event.thread : by->thread, "free", hexadecimal(event.address),
                 event.requested, by == nullptr ? event.stream : by->stream);
        }
    }
    void completed(const Allocation& /*allocation*/, const trace::Event* /*by*/) override {}

    void failed(const trace::OomEvent& oom) override {
        trace::Event event;
        event.device = oom.device;
        event.kind = oom.kind;
        event.stack = oom.stack;
        event.api = oom.api;
        // A site without a successful allocation is in no report, so no filter can match it.
        if (shows(event)) {
            line(oom.thread, "allocate failure", "(nil)", oom.requested, 0);
        }
    }

  private:
    bool shows(const trace::Event& event) {
        return within() && is_of_a_device_resource(event.kind) &&
               choice_.takes(event, string(event.api));
    }

    void line(std::uint32_t thread, std::string_view action, std::string_view pointer,
              std::uint64_t size, std::uint64_t stream) {
        out_ << thread << ',' << time() << ',' << action << ',' << pointer << ',' << size << ','
             << (stream == 0 ? std::string("0") : hexadecimal(stream)) << '\n';
    }

    /// Local time, as RMM writes it: "14:02:07.123456".
    std::string_view time() {
        const std::uint64_t wall = wall_ns();
        const auto second = static_cast<std::time_t>(wall / 1'000'000'000);
        if (second != second_ || !has_second_) {
            has_second_ = true;
            second_ = second;
            std::tm local{};
            localtime_r(&second, &local);
            std::snprintf(text_.data(), text_.size(), "%02d:%02d:%02d.", local.tm_hour % 100,
                          local.tm_min % 100, local.tm_sec % 100);
        }
        std::snprintf(text_.data() + 9, text_.size() - 9, "%06u",
                      static_cast<unsigned>(wall / 1000 % 1'000'000));
        return {text_.data(), 15};
    }

    SiteChoice choice_;
    Output out_;
    std::time_t second_ = 0;
    bool has_second_ = false;
    std::array<char, 32> text_{};
};

}  // namespace

Result write_csv(const Input& input, model::ByteSink& sink) {
    Csv csv(input, sink);
    constexpr trace::LogPart part = trace::LogPart::beginning;
    const trace::LogReadResult read = report::read_log_ahead(
        input.recording.log.path, static_cast<trace::RecordSink&>(csv), part);
    if (!read.gap) {
        csv.finish();
    }
    return {csv.written(), describe_missing(read, part, input.stretch)};
}

}  // namespace memlab::report::exports
