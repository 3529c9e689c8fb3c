#include "report/anonymize/anonymizer.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace memlab::report {

namespace {

/// Shorter names are words of something else too often.
constexpr std::size_t shortest_word = 4;

bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
}

/// The distribution's own folders, which are the same everywhere.
bool is_systems(std::string_view path) {
    constexpr std::array<std::string_view, 9> folders = {
        "/usr/lib/",       "/usr/lib64/", "/usr/include/", "/usr/bin/", "/usr/libexec/",
        "/usr/local/cuda", "/lib/",       "/lib64/",       "/bin/"};
    return std::any_of(folders.begin(), folders.end(),
                       [&](std::string_view folder) { return path.starts_with(folder); });
}

/// Where the part of a path begins by which a package, a standard library or the toolkit is
/// recognized; npos: nowhere.
std::size_t package_part(std::string_view path) {
    for (const std::string_view part : {"/lib/python", "/site-packages/", "/dist-packages/",
                                        "/include/c++/", "/targets/x86_64-linux/"}) {
        if (const std::size_t at = path.find(part); at != std::string_view::npos && at != 0) {
            return at;
        }
    }
    return std::string_view::npos;
}

bool names_code(std::string_view name) {
    constexpr std::array<std::string_view, 24> endings = {
        ".py",  ".pyc",   ".pyx",    ".so",  ".c",   ".cc",   ".cpp",    ".cxx",
        ".cu",  ".cuh",   ".h",      ".hpp", ".inl", ".ipp",  ".rs",     ".f90",
        ".ptx", ".cubin", ".fatbin", ".jl",  ".go",  ".mojo", ".memlog", ".json"};
    return name.find(".so.") != std::string_view::npos ||
           std::any_of(endings.begin(), endings.end(), [&](std::string_view ending) {
               return name.size() > ending.size() && name.ends_with(ending);
           });
}

std::string_view name_of(std::string_view path) {
    return path.substr(path.rfind('/') + 1);
}

/// Whether an absolute path begins at text[at].
bool begins_path(std::string_view text, std::size_t at) {
    return text[at] == '/' && at + 1 < text.size() && text[at + 1] != '/' &&
           std::isspace(static_cast<unsigned char>(text[at + 1])) == 0 &&
           (at == 0 ||
            std::string_view(" \t\n\"'`=:,;([{<|").find(text[at - 1]) != std::string_view::npos);
}

std::size_t end_of_path(std::string_view text, std::size_t at) {
    return std::min(text.find_first_of(" \t\n\"'`:,;)]}>|", at), text.size());
}

}  // namespace

void Anonymizer::learn(const std::string& name, const std::vector<std::string>& paths) {
    if (const std::string instead = host(name); name.size() >= shortest_word) {
        words_[name] = instead;
    }
    for (const std::string& path : paths) {
        for (const std::string_view homes : {"/home/", "/Users/"}) {
            const std::size_t at = path.find(homes);
            if (at == std::string::npos) {
                continue;
            }
            const std::size_t begin = at + homes.size();
            const std::string user = path.substr(begin, path.find('/', begin) - begin);
            if (user.size() >= shortest_word) {
                words_[user] = "user";
            }
        }
    }
}

std::string Anonymizer::host(const std::string& name) {
    if (name.empty()) {
        return name;
    }
    const std::size_t next = hosts_.size() + 1;
    return "host-" + std::to_string(hosts_.try_emplace(name, next).first->second);
}

std::string Anonymizer::uuid(const std::string& device) {
    if (device.empty()) {
        return device;
    }
    constexpr std::size_t last_part = 12;
    const std::size_t next = devices_.size() + 1;
    std::string number = std::to_string(devices_.try_emplace(device, next).first->second);
    number.insert(0, last_part - std::min(number.size(), last_part), '0');
    // "MIG-" of a part of a GPU.
    const std::string_view kind = device.starts_with("MIG-") ? "MIG-" : "GPU-";
    std::string instead(kind);
    instead += "00000000-0000-0000-0000-" + number;
    words_[device] = instead;
    return instead;
}

std::string Anonymizer::file_name(const std::string& name) const {
    for (const auto& [known, number] : hosts_) {
        if (const std::size_t at = name.find("." + known + "."); at != std::string::npos) {
            return name.substr(0, at + 1) + "host-" + std::to_string(number) +
                   name.substr(at + 1 + known.size());
        }
    }
    return name;
}

std::string Anonymizer::number(const std::string& folder) {
    const std::size_t next = folders_.size() + 1;
    return "/" + std::to_string(folders_.try_emplace(folder, next).first->second);
}

std::string Anonymizer::path(const std::string& file) {
    if (file.empty() || file.front() != '/' || is_systems(file)) {
        return file;
    }
    if (const std::size_t at = package_part(file); at != std::string::npos) {
        return number(file.substr(0, at)) + file.substr(at);
    }
    const std::string_view name = name_of(file);
    return number(file.substr(0, file.size() - name.size())) + "/" + std::string(name);
}

std::string Anonymizer::text(const std::string& any) {
    std::string result;
    for (std::size_t at = 0; at < any.size();) {
        if (!begins_path(any, at)) {
            result += any[at++];
            continue;
        }
        // A path alone may have blanks in it.
        const bool alone =
            at == 0 && names_code(any) && any.find_first_of(",:;\"") == std::string::npos;
        const std::size_t end = alone ? any.size() : end_of_path(any, at);
        const std::string found = any.substr(at, end - at);
        const bool keep = is_systems(found) || names_code(name_of(found));
        result += keep ? path(found) : number(found);
        at = end;
    }
    return replace_words(std::move(result));
}

std::string Anonymizer::replace_words(std::string text) const {
    for (const auto& [word, instead] : words_) {
        for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
            const std::size_t end = at + word.size();
            if ((at != 0 && is_word(text[at - 1])) || (end < text.size() && is_word(text[end]))) {
                at = end;
                continue;
            }
            text.replace(at, word.size(), instead);
            at += instead.size();
        }
    }
    return text;
}

std::vector<std::string> Anonymizer::arguments(const std::vector<std::string>& all) {
    std::vector<std::string> kept;
    if (all.empty()) {
        return kept;
    }
    kept.emplace_back(name_of(all.front()));
    for (std::size_t i = 1; kept.front().starts_with("python") && i < all.size(); ++i) {
        if (all[i] == "-m" && i + 1 < all.size()) {
            kept.insert(kept.end(), {"-m", all[i + 1]});
            break;
        }
        if (all[i] == "-c") {
            break;
        }
        if (all[i] == "-W" || all[i] == "-X") {
            ++i;  // its value
        } else if (!all[i].starts_with("-")) {
            kept.emplace_back(name_of(all[i]));
            break;
        }
    }
    return kept;
}

}  // namespace memlab::report
