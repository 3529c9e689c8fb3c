#include "report/check/baseline.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "report/output_file.hpp"

namespace memlab::report::check {

namespace {

using json = nlohmann::ordered_json;

constexpr const char* format = "memlab-baseline";
constexpr std::uint64_t version = 1;
constexpr std::uintmax_t max_baseline_bytes = 64U << 20;

json number_json(Figure figure) {
    if (figure.is_whole() && figure >= Figure()) {
        return figure.as_whole();
    }
    return figure.as_double();
}

json text_or_null(bool present, const std::string& text) {
    return present ? json(text) : json(nullptr);
}

json figure_json(const BaselineFigure& each) {
    json out;
    out["process"] = each.process;
    out["device"] = each.device ? json(*each.device) : json(nullptr);
    out["metric"] = info(each.metric).name;
    out["site"] = text_or_null(each.subject.kind == Subject::Kind::site, each.subject.text);
    out["scope"] = text_or_null(each.subject.kind == Subject::Kind::scope, each.subject.text);
    for (const Subject::Kind kind : {Subject::Kind::kind, Subject::Kind::nn_module}) {
        if (each.subject.kind == kind) {
            out[std::string(keyword(kind))] = each.subject.text;
        }
    }
    out["value"] = number_json(each.figure);
    return out;
}

std::string to_json_text(const json& value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// The order in the file; it does not depend on the order of events.
bool before(const BaselineFigure& a, const BaselineFigure& b) {
    const auto rank = [](const BaselineFigure& each) {
        return std::tie(each.key, each.process, each.device, each.subject.kind, each.subject.text,
                        each.metric);
    };
    return rank(a) < rank(b);
}

Subject parse_subject(const json& item) {
    const json& site = item.at("site");
    const json& scope = item.at("scope");
    if (!site.is_null()) {
        return {Subject::Kind::site, site.get<std::string>()};
    }
    if (!scope.is_null()) {
        return {Subject::Kind::scope, scope.get<std::string>()};
    }
    for (const Subject::Kind kind : {Subject::Kind::kind, Subject::Kind::nn_module}) {
        if (const auto of = item.find(keyword(kind)); of != item.end()) {
            return {kind, of->get<std::string>()};
        }
    }
    return {};
}

std::uint64_t to_uint64(const json& value) {
    if (!value.is_number_unsigned()) {
        throw std::invalid_argument("a number is out of range");
    }
    return value.get<std::uint64_t>();
}

std::vector<BaselineFigure> parse_figures(const json& root) {
    std::vector<BaselineFigure> figures;
    for (const json& entry : root.at("entries")) {
        const BaselineKey key{entry.at("gpu").get<std::string>(),
                              to_uint64(entry.at("driver_version"))};
        for (const json& item : entry.at("figures")) {
            const MetricInfo* metric = find_metric(item.at("metric").get<std::string>());
            if (metric == nullptr) {
                continue;  // of a later version
            }
            const json& value = item.at("value");
            if (!value.is_number()) {
                throw std::invalid_argument("a value is no number");
            }
            const json& device = item.at("device");
            figures.push_back(
                {key, item.at("process").get<std::string>(),
                 device.is_null() ? std::nullopt : std::optional<std::uint64_t>(to_uint64(device)),
                 metric->metric, parse_subject(item),
                 value.is_number_unsigned() ? Figure::whole(value.get<std::uint64_t>())
                                            : Figure::real(value.get<double>())});
        }
    }
    return figures;
}

bool is_folder(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

/// "nvidia-h100-80gb-hbm3-13000.json"
std::string file_name(const BaselineKey& key) {
    std::string name;
    for (const char c : key.gpu) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 128 && std::isalnum(byte) != 0) {
            name += static_cast<char>(std::tolower(byte));
        } else if (!name.empty() && name.back() != '-') {
            name += '-';
        }
    }
    name += name.empty() || name.back() != '-' ? "-" : "";
    return name + std::to_string(key.driver_version) + ".json";
}

BaselineResult read_file(const std::string& path) {
    BaselineResult result;
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    std::ifstream file(path, std::ios::binary);
    char first = 0;
    if (error || !file.is_open()) {
        result.exists = std::filesystem::exists(path, error);
        result.error = result.exists ? path + ": cannot be read; check its permissions" : "";
        return result;
    }
    result.exists = true;
    // Rejects most other files without reading them.
    file >> first;
    if (first != '{' || size > max_baseline_bytes) {
        return result;
    }
    file.seekg(0);
    std::ostringstream text;
    text << file.rdbuf();
    result = parse_baseline(text.str());
    result.exists = true;
    if (!result.error.empty()) {
        result.error.insert(0, path + ": ");
    }
    return result;
}

BaselineResult read_folder(const std::string& path) {
    BaselineResult result;
    result.exists = true;
    std::vector<std::string> files;
    std::error_code error;
    bool empty = true;
    for (std::filesystem::directory_iterator item(path, error), end; !error && item != end;
         item.increment(error)) {
        empty = false;
        if (item->path().extension() == ".json") {
            files.push_back(item->path().string());
        }
    }
    if (error) {
        result.error = path + ": cannot be read (" + error.message() + "); check its permissions";
        return result;
    }
    std::sort(files.begin(), files.end());
    std::vector<BaselineFigure> figures;
    for (const std::string& file : files) {
        BaselineResult one = read_file(file);
        if (!one.error.empty()) {
            return one;
        }
        if (one.baseline) {
            const auto& more = one.baseline->figures();
            figures.insert(figures.end(), more.begin(), more.end());
        }
    }
    if (empty || !figures.empty()) {
        result.baseline = Baseline(std::move(figures));
    }
    return result;
}

}  // namespace

bool Baseline::contains(const BaselineKey& key) const {
    return std::any_of(figures_.begin(), figures_.end(),
                       [&](const auto& each) { return each.key == key; });
}

std::optional<Figure> Baseline::find(const BaselineKey& key, const std::string& process,
                                     const std::optional<std::uint64_t>& device, Metric metric,
                                     const Subject& subject) const {
    for (const BaselineFigure& each : figures_) {
        if (each.key == key && (process.empty() || each.process == process) &&
            each.device == device && each.metric == metric && each.subject == subject) {
            return each.figure;
        }
    }
    return std::nullopt;
}

std::vector<std::string> Baseline::processes(const BaselineKey& key) const {
    std::set<std::string> names;
    for (const BaselineFigure& each : figures_) {
        if (each.key == key) {
            names.insert(each.process);
        }
    }
    return {names.begin(), names.end()};
}

void Baseline::replace(const std::vector<BaselineFigure>& newer) {
    std::set<BaselineKey> keys;
    for (const BaselineFigure& each : newer) {
        keys.insert(each.key);
    }
    std::erase_if(figures_, [&](const auto& each) { return keys.contains(each.key); });
    figures_.insert(figures_.end(), newer.begin(), newer.end());
}

BaselineResult parse_baseline(const std::string& text) {
    BaselineResult result;
    try {
        const json root = json::parse(text);
        if (!root.is_object() || !root.contains("format") || root["format"] != format) {
            return result;
        }
        if (root.at("version") != version) {
            result.error = "is a baseline of another version; record it again with --update";
            return result;
        }
        result.baseline = Baseline(parse_figures(root));
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const std::exception&) {
        // A file that names the format is a damaged baseline; any other is a different kind of
        // file.
        if (text.find(std::string("\"") + format + "\"") != std::string::npos) {
            result.error =
                "is a damaged baseline; take it from version control, or record it again with "
                "--update";
        }
    }
    return result;
}

std::string baseline_text(const std::vector<BaselineFigure>& figures) {
    std::map<BaselineKey, std::vector<BaselineFigure>> entries;
    for (const BaselineFigure& each : figures) {
        entries[each.key].push_back(each);
    }
    std::string text = "{\"format\": \"";
    text.append(format).append("\", \"version\": ").append(std::to_string(version));
    text.append(", \"entries\": [");
    bool first_entry = true;
    for (auto& [key, items] : entries) {
        std::sort(items.begin(), items.end(), before);
        text.append(first_entry ? "\n" : ",\n").append(" {\"gpu\": ").append(to_json_text(key.gpu));
        text.append(", \"driver_version\": ").append(std::to_string(key.driver_version));
        text.append(", \"figures\": [");
        for (std::size_t i = 0; i < items.size(); ++i) {
            text.append(i == 0 ? "\n  " : ",\n  ").append(to_json_text(figure_json(items[i])));
        }
        text.append("]}");
        first_entry = false;
    }
    return text.append("]}\n");
}

BaselineResult read_baseline(const std::string& path) {
    return is_folder(path) ? read_folder(path) : read_file(path);
}

std::string update_baseline(const std::string& path, const std::vector<BaselineFigure>& figures) {
    const bool folder = is_folder(path) || (!path.empty() && path.back() == '/');
    if (!folder) {
        const BaselineResult old = read_file(path);
        if (old.exists && !old.baseline) {
            return old.error.empty() ? path +
                                           ": is not a baseline and will not be overwritten; name "
                                           "another file"
                                     : old.error;
        }
        Baseline all = old.baseline.value_or(Baseline());
        all.replace(figures);
        return report::write_output(path, baseline_text(all.figures()));
    }
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) {
        return path + ": cannot be created (" + error.message() + "); name another folder";
    }
    std::map<BaselineKey, std::vector<BaselineFigure>> files;
    for (const BaselineFigure& each : figures) {
        files[each.key].push_back(each);
    }
    for (const auto& [key, items] : files) {
        const std::string file = path + (path.back() == '/' ? "" : "/") + file_name(key);
        const BaselineResult old = read_file(file);
        if (old.exists && !old.baseline) {
            return old.error.empty()
                       ? file +
                             ": is not a baseline and will not be overwritten; name another folder"
                       : old.error;
        }
        Baseline all = old.baseline.value_or(Baseline());
        all.replace(items);
        if (std::string problem = report::write_output(file, baseline_text(all.figures()));
            !problem.empty()) {
            return problem;
        }
    }
    return {};
}

std::string key_text(const BaselineKey& key) {
    return (key.gpu.empty() ? std::string("an unnamed GPU") : key.gpu) + " with a CUDA " +
           std::to_string(key.driver_version / 1000) + "." +
           std::to_string(key.driver_version % 1000 / 10) + " driver";
}

}  // namespace memlab::report::check
