// Exports the file format of https://www.speedscope.app
// (https://www.speedscope.app/file-format-schema.json): one sampled profile in bytes (no unit for
// counts), one sample per call stack.
//
// Stacks with weight 0 are omitted.
#include <functional>
#include <string>

#include "report/exports/formats.hpp"
#include "report/exports/output.hpp"
#include "report/exports/stacks.hpp"
#include "report/text/names.hpp"

namespace memlab::report::exports {

Result write_speedscope(const Input& input, model::ByteSink& sink) {
    const model::Report& report = input.recording.report;
    FrameTable frames;
    Stacks stacks(input, frames, has_several_devices(input));
    // Three passes, so that no list of samples is in memory.
    const auto for_each = [&](const std::function<void(const WeighedStack&, std::uint64_t)>& use) {
        stacks.for_each([&](const WeighedStack& stack) {
            if (const std::uint64_t weight = stack.weights.of(input.by); weight != 0) {
                use(stack, weight);
            }
        });
    };
    std::uint64_t total = 0;
    for_each([&](const WeighedStack&, std::uint64_t weight) {
        total = total > ~std::uint64_t{0} - weight ? ~std::uint64_t{0} : total + weight;
    });

    model::JsonOutput json(sink);
    json.begin_object();
    json.member("$schema", "https://www.speedscope.app/file-format-schema.json");
    json.member("exporter", clean_name("memlab " + report.memlab_version));
    json.member("name", clean_name(report::base_name(report.process.executable) + " " +
                                   std::to_string(report.process.pid)));
    json.member("activeProfileIndex", 0);
    json.new_line();
    json.key("profiles");
    json.begin_array();
    json.begin_object();
    json.member("type", "sampled");
    json.member("name", input.moment.empty() ? std::string(info_of(input.by).title)
                                             : clean_name("held at " + input.moment));
    json.member("unit", input.by == Weight::count ? "none" : "bytes");
    json.member("startValue", 0);
    json.member("endValue", total);
    json.new_line();
    json.key("samples");
    json.begin_array();
    for_each([&](const WeighedStack& stack, std::uint64_t) {
        json.new_line();
        json.begin_array();
        for (const std::uint32_t number : stack.frames) {
            json.number(number);
        }
        json.end_array();
    });
    json.end_array();
    json.new_line();
    json.key("weights");
    json.begin_array();
    for_each([&](const WeighedStack&, std::uint64_t weight) { json.number(weight); });
    json.end_array();
    json.end_object();
    json.end_array();
    json.new_line();
    json.key("shared");
    json.begin_object();
    json.key("frames");
    json.begin_array();
    for (std::uint32_t number = 0; number < frames.size(); ++number) {
        const NamedFrame& frame = frames[number];
        json.new_line();
        json.begin_object();
        json.member("name", frame.function);
        if (!frame.file.empty()) {
            json.member("file", frame.file);
            if (frame.line > 0) {
                json.member("line", frame.line);
            }
        }
        json.end_object();
    }
    json.end_array();
    json.end_object();
    json.end_object();
    return {json.finish(), ""};
}

}  // namespace memlab::report::exports
