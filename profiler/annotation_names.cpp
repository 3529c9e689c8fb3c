#include "profiler/annotation_names.hpp"

#include "trace/folded_name.hpp"

namespace memlab::profiler {
namespace {

std::uint64_t hash_of(std::uint32_t domain, std::string_view text) {
    std::uint64_t hash = 0xcbf29ce484222325ULL ^ domain;  // FNV-1a
    for (const char c : text) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    }
    return hash ^ (hash >> 32);
}

}  // namespace

std::string_view cut_text(std::string_view text, std::size_t most) {
    if (text.size() <= most) {
        return text;
    }
    std::size_t end = most;
    constexpr std::size_t longest = 3;  // bytes of a character after its first
    while (end > 0 && most - end < longest && (static_cast<unsigned char>(text[end]) >> 6) == 2) {
        --end;
    }
    return text.substr(0, (static_cast<unsigned char>(text[end]) >> 6) == 2 ? most : end);
}

AnnotationNames::AnnotationNames() : domains_(2) {}

const AnnotationName* AnnotationNames::find(std::uint32_t domain, std::string_view message) {
    message = cut_text(message, max_bytes);
    auto& cached = cache_[hash_of(domain, message) % cache_size];
    const AnnotationName* const known = cached.load(std::memory_order_acquire);
    if (known != nullptr && known->domain == domain && known->message == message) {
        return known;
    }
    const AnnotationName* const name = find_slowly(domain, message);
    if (name->message == message) {  // else it stands for many
        cached.store(name, std::memory_order_release);
    }
    return name;
}

const AnnotationName* AnnotationNames::find_slowly(std::uint32_t domain, std::string_view message) {
    const auto key_of = [domain](std::string_view text) {
        return std::to_string(domain) + ":" + std::string(text);
    };
    std::string text(message);
    const std::lock_guard lock(mutex_);
    auto at = names_.find(key_of(text));
    if (at == names_.end() && names_.size() >= max_exact) {
        text = trace::folded_name(message);
        at = names_.find(key_of(text));
        if (at == names_.end() && names_.size() >= max_names) {
            domain = own_domain;
            text = "(other names)";
            at = names_.find(key_of(text));
        }
    }
    if (at != names_.end()) {
        return at->second.get();
    }
    auto name = std::make_unique<AnnotationName>();
    name->domain = domain;
    name->message = text;
    name->text = domains_[domain].empty() ? text : domains_[domain] + ":" + text;
    return names_.emplace(std::to_string(domain) + ":" + text, std::move(name)).first->second.get();
}

std::uint32_t AnnotationNames::domain(std::string_view name) {
    name = cut_text(name, max_bytes);
    const std::lock_guard lock(mutex_);
    for (std::uint32_t known = nvtx_domain + 1; known < domains_.size(); ++known) {
        if (domains_[known] == name) {
            return known;
        }
    }
    if (domains_.size() == max_domains) {
        return nvtx_domain;
    }
    domains_.emplace_back(name);
    return static_cast<std::uint32_t>(domains_.size() - 1);
}

}  // namespace memlab::profiler
