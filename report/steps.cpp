#include "report/steps.hpp"

#include "model/report_builder.hpp"
#include "report/text/units.hpp"
#include "trace/folded_name.hpp"

namespace memlab::report {

using trace::EventType;

bool is_path_named(std::string_view path, std::string_view name) {
    return path == name || (!name.empty() && path.size() > name.size() && path.ends_with(name) &&
                            path[path.size() - name.size() - 1] == '/');
}

bool is_step_named(std::string_view path, std::string_view name) {
    if (name.empty() || is_path_named(path, name)) {
        return !name.empty();
    }
    // "step 12", "step #": a step of "step".
    std::string folded = trace::folded_name(path);
    if (is_path_named(folded, name)) {
        return true;
    }
    folded.resize(folded.find_last_not_of("# _-:.") + 1);
    return is_path_named(folded, name);
}

std::optional<std::size_t> choose_steps(const model::Report& report, const std::string& name) {
    std::optional<std::size_t> chosen;
    for (std::size_t i = 0; i < report.steps.size(); ++i) {
        const model::Steps& steps = report.steps[i];
        if ((name.empty() || is_step_named(steps.name, name)) &&
            (!chosen || steps.steps > report.steps[*chosen].steps)) {
            chosen = i;
        }
    }
    return chosen;
}

std::string describe_steps(const model::Steps& steps) {
    const std::string count = format_plural(steps.steps, "step");
    return steps.evidence.empty() ? count + " by " + steps.kind + " \"" + steps.name + "\""
                                  : count + ", found and not marked: " + steps.evidence;
}

std::string range_after_steps(const model::Steps& steps) {
    const std::string lowest = format_bytes(steps.trend.min_bytes);
    const std::string highest = format_bytes(steps.trend.max_bytes);
    return (lowest == highest ? "at " + lowest : "between " + lowest + " and " + highest) +
           " after each";
}

std::uint64_t StepCounter::ended(const trace::Aggregator& figures) {
    const trace::StepStats& steps = figures.step_stats();
    if (left_out_ != steps.kinds_left_out()) {
        left_out_ = steps.kinds_left_out();
        examined_ = 0;  // a later kind may have taken the place of an earlier one
    }
    for (; !key_ && examined_ < steps.kind_count(); ++examined_) {
        const auto [kind, path] = steps.kind(examined_);
        if (trace::name_of(kind) == kind_ && model::step_name(figures, kind, path) == name_) {
            key_.emplace(kind, path);
        }
    }
    return key_ ? steps.ended(key_->first, key_->second) : 0;
}

StepEnds StepEnds::all_marks() {
    StepEnds ends;
    ends.which_ = Which::all_marks;
    return ends;
}

StepEnds StepEnds::named(const std::string& name) {
    StepEnds ends;
    ends.which_ = Which::named;
    ends.name_ = name;
    return ends;
}

StepEnds StepEnds::path(const std::string& path) {
    StepEnds ends;
    ends.which_ = Which::path;
    ends.name_ = path;
    return ends;
}

StepEnds StepEnds::at(const trace::StepAnchor& anchor) {
    StepEnds ends;
    ends.which_ = Which::anchor;
    ends.anchor_ = anchor;
    return ends;
}

bool StepEnds::matches(std::string_view text) const {
    return which_ == Which::path ? text == name_ : is_step_named(text, name_);
}

bool StepEnds::is_end(const trace::Event& event, const trace::Aggregator& figures) {
    if (which_ == Which::anchor) {
        return anchor_.ends(event);
    }
    const bool is_mark = event.type == EventType::mark;
    if (which_ == Which::none || (!is_mark && event.type != EventType::scope_end)) {
        return false;
    }
    if (is_mark ? which_ != Which::named : which_ == Which::all_marks) {
        return which_ == Which::all_marks;
    }
    if (!is_mark && !figures.ended_scope().happened) {
        return false;
    }
    const std::uint32_t number = is_mark ? event.name : figures.ended_scope().path;
    std::vector<Known>& known = is_mark ? known_marks_ : known_paths_;
    if (number >= known.size()) {
        known.resize(std::size_t{number} + 1);
    }
    if (known[number] == Known::no) {
        // Paths have # for numbers; a name may be given with its numbers.
        const std::string text =
            is_mark ? figures.string(number) : figures.scopes().path_text(number);
        const bool is = matches(text) || (is_mark && matches(trace::folded_name(text)));
        known[number] = is ? Known::is_end : Known::other;
    }
    return known[number] == Known::is_end;
}

}  // namespace memlab::report
