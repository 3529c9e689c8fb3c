#include "report/check/budget.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>

#include "report/check/settings_tree.hpp"

namespace memlab::report::check {

namespace {

constexpr std::size_t max_budget = 1U << 20;

/// Thrown by Reader: the first error.
struct Invalid {
    std::string what;
    Position at;
};

std::string metric_names(Subject::Kind kind) {
    std::string names;
    for (const MetricInfo& metric : metrics()) {
        if (measures(metric, kind)) {
            names += (names.empty() ? "" : ", ") + std::string(metric.name);
        }
    }
    return names;
}

std::string plural_keyword(Subject::Kind kind) {
    return std::string(keyword(kind)) + "s";
}

class Reader {
  public:
    explicit Reader(std::string name) : name_(std::move(name)) {}

    Budget read(const Setting& root) {
        for (const Member& member : table(root, "the budget")) {
            if (member.key == "baseline") {
                budget_.baseline = text(member);
            } else if (member.key == "suppressions") {
                budget_.suppressions = text(member);
            } else if (member.key == "limits") {
                for (const Member& limit : table(member.value, "limits")) {
                    read_limit(limit, Subject());
                }
            } else if (member.key == "site") {
                read_subjects(member, Subject::Kind::site, "match");
            } else if (member.key == "scope") {
                read_subjects(member, Subject::Kind::scope, "name");
            } else if (member.key == "kind") {
                read_subjects(member, Subject::Kind::kind, "name");
            } else if (member.key == "nn_module") {
                read_subjects(member, Subject::Kind::nn_module, "name");
            } else {
                throw Invalid{
                    "unknown key \"" + member.key +
                        "\"; a budget has limits, site, scope, kind, nn_module, baseline and "
                        "suppressions",
                    member.at};
            }
        }
        return std::move(budget_);
    }

  private:
    static const Setting::Table& table(const Setting& setting, std::string_view what) {
        const auto* members = std::get_if<Setting::Table>(&setting.value);
        if (members == nullptr) {
            throw Invalid{std::string(what) + " is not a table of keys and values", setting.at};
        }
        return *members;
    }

    static const std::string& text(const Member& member) {
        const auto* scalar = std::get_if<Setting::Scalar>(&member.value.value);
        if (scalar == nullptr || scalar->number || scalar->text.empty()) {
            throw Invalid{member.key + " takes text in quotes", member.at};
        }
        return scalar->text;
    }

    void read_subjects(const Member& list, Subject::Kind kind, const std::string& selector) {
        const auto* items = std::get_if<Setting::List>(&list.value.value);
        if (items == nullptr) {
            throw Invalid{list.key + " is a list of tables: [[" + list.key + "]]", list.at};
        }
        for (const Setting& item : *items) {
            const Setting::Table& members = table(item, "an entry of " + list.key);
            const auto selected =
                std::find_if(members.begin(), members.end(),
                             [&](const Member& member) { return member.key == selector; });
            if (selected == members.end()) {
                throw Invalid{"[[" + list.key + "]] has no \"" + selector + "\"; say which " +
                                  plural_keyword(kind) + " it limits",
                              item.at};
            }
            const Subject subject{kind, text(*selected)};
            if (const std::string problem = subject_problem(subject); !problem.empty()) {
                throw Invalid{std::string(selector).append(" ").append(problem), selected->at};
            }
            const std::size_t before = budget_.limits.size();
            for (const Member& member : members) {
                if (&member != &*selected) {
                    read_limit(member, subject);
                }
            }
            if (budget_.limits.size() == before) {
                throw Invalid{"[[" + list.key + "]] limits nothing; it takes " + metric_names(kind),
                              selected->at};
            }
        }
    }

    void read_limit(const Member& member, const Subject& subject) {
        const MetricInfo* metric = find_metric(member.key);
        if (metric == nullptr) {
            throw Invalid{
                "unknown key \"" + member.key + "\"; limits are " + metric_names(subject.kind),
                member.at};
        }
        if (!measures(*metric, subject.kind)) {
            throw Invalid{member.key + " is not measured by " + plural_keyword(subject.kind) +
                              "; these have " + metric_names(subject.kind),
                          member.at};
        }
        if (const auto* list = std::get_if<Setting::List>(&member.value.value)) {
            if (list->empty()) {
                throw Invalid{member.key + " has no limit; leave it out instead", member.at};
            }
            for (const Setting& each : *list) {
                add_limit(*metric, subject, each, member);
            }
        } else {
            add_limit(*metric, subject, member.value, member);
        }
    }

    void add_limit(const MetricInfo& metric, const Subject& subject, const Setting& value,
                   const Member& member) {
        const auto* scalar = std::get_if<Setting::Scalar>(&value.value);
        std::string problem = "takes a limit, a number or text";
        std::string_view text = scalar == nullptr ? std::string_view() : scalar->text;
        Subject of = subject;
        if (subject.kind == Subject::Kind::all && metric.of_kinds) {
            of = take_kind(&text);
        }
        if (const std::string wrong = of == subject ? std::string() : subject_problem(of);
            !wrong.empty()) {
            throw Invalid{member.key + ": " + wrong, member.at};
        }
        const std::optional<Bound> bound =
            scalar == nullptr ? std::nullopt : parse_bound(text, metric.unit, &problem);
        if (!bound) {
            throw Invalid{member.key + " " + problem, member.at};
        }
        budget_.limits.push_back(
            {metric.metric, std::move(of), *bound, name_ + ":" + std::to_string(member.at.line)});
    }

    std::string name_;
    Budget budget_;
};

std::string located(const std::string& name, Position at, const std::string& what) {
    std::string text = name;
    text.append(":").append(std::to_string(at.line));
    text.append(":").append(std::to_string(at.column)).append(": ").append(what);
    // A key may hold any character.
    std::replace(text.begin(), text.end(), '\n', ' ');
    std::replace(text.begin(), text.end(), '\r', ' ');
    return text;
}

std::string folder_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

}  // namespace

BudgetResult parse_budget(std::string_view text, const std::string& name) {
    BudgetResult result;
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    const bool is_json = first != std::string_view::npos && text[first] == '{';
    SettingsResult settings = is_json ? parse_json(text) : parse_toml(text);
    if (!settings.error.empty()) {
        result.error = located(name, settings.at, settings.error);
        return result;
    }
    try {
        result.budget = Reader(name).read(settings.root);
    } catch (const Invalid& invalid) {
        result.error = located(name, invalid.at, invalid.what);
    }
    return result;
}

BudgetResult read_budget(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string text(max_budget + 1, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (!file.is_open() || file.bad()) {
        return {std::nullopt, path + ": cannot be read (" + std::strerror(errno) +
                                  "); name a budget file (docs/ci.md)"};
    }
    text.resize(static_cast<std::size_t>(file.gcount()));
    if (text.size() > max_budget) {
        return {std::nullopt, path + ": larger than any budget; name a budget file (docs/ci.md)"};
    }
    BudgetResult result = parse_budget(text, path);
    if (result.budget) {
        for (std::string* named : {&result.budget->baseline, &result.budget->suppressions}) {
            if (!named->empty() && named->front() != '/') {
                named->insert(0, folder_of(path));
            }
        }
    }
    return result;
}

}  // namespace memlab::report::check
