#include "tools/run/bypass_check.hpp"

#include "report/reading/reader.hpp"
#include "report/text/names.hpp"
#include "report/text/terminal.hpp"
#include "report/text/units.hpp"

namespace memlab::tools {

namespace {

using namespace memlab::report;

std::string name_of(const model::Process& process) {
    return base_name(process.executable) + " (pid " + std::to_string(process.pid) + ")";
}

/// "2 allocations of 3.00 MiB in app (pid 7), the largest part by cudaMalloc"
std::string describe(const model::Report& report) {
    const model::Coverage& coverage = report.coverage;
    const model::Coverage::Bypassed* most = nullptr;
    for (const model::Coverage::Bypassed& each : coverage.bypassed) {
        if (most == nullptr || each.bytes > most->bytes) {
            most = &each;
        }
    }
    std::string text = format_plural(coverage.bypassed_count, "allocation") + " of " +
                       format_bytes(coverage.bypassed_bytes) + " in " + name_of(report.process);
    if (most != nullptr && !most->api.empty()) {
        text += coverage.bypassed.size() > 1 ? ", most of it by " : " by ";
        text += most->api;
    }
    return text;
}

}  // namespace

std::string bypass_problem(const std::vector<RunFiles>& files) {
    std::string bypassed;
    std::string unknown;
    std::size_t more = 0;
    for (const RunFiles& each : files) {
        const ReadResult read = read_report(each.json);
        if (!read.report) {
            unknown = each.json + ": " + read.error;
            continue;
        }
        const model::Coverage& coverage = read.report->coverage;
        if (coverage.bypassed_count != 0) {
            more += bypassed.empty() ? 0 : 1;
            bypassed = bypassed.empty() ? describe(*read.report) : bypassed;
        } else if (!coverage.audited && unknown.empty()) {
            unknown = name_of(read.report->process) + " was not audited: " + coverage.because;
        }
    }
    if (!bypassed.empty()) {
        bypassed += " bypassed memlab";
        bypassed += more == 0 ? "" : " (and in " + format_plural(more, "process") + " more)";
        return printable(bypassed, false);
    }
    return unknown.empty()
               ? unknown
               : printable("cannot tell whether memory bypassed memlab: " + unknown, false);
}

}  // namespace memlab::tools
