// libFuzzer: any bytes as a recording, an event log or a report, written in every format that
// memlab-report export knows. Whatever was recorded, what comes out must be of its format.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "report/exports/formats.hpp"
#include "report/exports/perfetto.hpp"
#include "report/lacks.hpp"
#include "report/reading/find_event_log.hpp"
#include "report/reading/reader.hpp"
#include "tests/fuzz/format_rules.hpp"
#include "tests/fuzz/fuzz_input.hpp"

namespace {

using namespace memlab;
using namespace memlab::fuzz;

bool obeys(std::string_view format, const std::string& text) {
    if (format == "csv") {
        return is_rmm_csv(text);
    }
    if (format == "folded") {
        return is_folded(text);
    }
    if (format == "openmetrics") {
        return is_openmetrics(text);
    }
    if (format == "perfetto") {
        return is_perfetto(text);
    }
    if (format == "pprof") {
        return is_pprof(text);
    }
    if (format == "pytorch") {
        return is_pickle(text);
    }
    require(format == "speedscope");
    return is_json(text) && is_clean_text(text);
}

void export_all(const std::uint8_t* data, std::size_t size) {
    const MemoryFile file(data, size);
    report::ReadResult read = report::read_report(file.path());
    if (!read.report) {
        require(!read.error.empty());
        return;
    }
    report::FoundLog log = report::look_for_log(file.path(), *read.report);
    std::vector<report::Lack> lacks = report::find_lacks(*read.report);
    const report::exports::Recording recording{std::move(*read.report), std::move(log),
                                               std::move(lacks)};
    report::Resolver resolver(recording.report, nullptr);
    report::Filter filter;
    if (size % 4 == 3) {
        require(filter.add("*a*").empty());
    }
    report::exports::Input input{
        .recording = recording, .resolver = resolver, .filter = filter, .device = {}};
    for (const report::exports::Format& format : report::exports::formats) {
        input.device.reset();
        if (format.one_device) {
            const auto used =
                std::find_if(recording.report.devices.begin(), recording.report.devices.end(),
                             [](const auto& device) { return device.used(); });
            if (used != recording.report.devices.end()) {
                input.device = used->index;
            }
        }
        if (format.needs_log && recording.log.empty()) {
            continue;
        }
        input.by = static_cast<report::exports::Weight>(size % 4);
        const auto written = [&] {
            model::StringSink sink;
            require(format.write(input, sink).written);
            return sink.text;
        };
        require(obeys(format.name, written()));
        if (format.of_events) {
            const std::uint64_t duration_ns = recording.report.process.duration_ns;
            input.stretch = {.from_ns = duration_ns / 4, .until_ns = duration_ns / 2};
            require(obeys(format.name, written()));
            input.stretch = {};
        }
        if (format.compares) {
            const report::exports::Input before = input;
            input.before = &before;
            input.by = static_cast<report::exports::Weight>((size + 1) % 4);
            const std::string text = written();
            require(format.name == "folded" ? is_folded(text, 2) : obeys(format.name, text));
            input.before = nullptr;
        }
    }
    model::StringSink sink;
    report::exports::PerfettoTrace trace(sink, recording.report.process.start_wall_ns);
    trace.add(input, size);
    trace.add(input, 0);
    require(trace.finish());
    require(is_perfetto(sink.text));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    export_all(data, size);
    const auto log = as_open_log(data, size);
    export_all(log.data(), log.size());
    return 0;
}
