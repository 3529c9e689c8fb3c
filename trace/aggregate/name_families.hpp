// Interns the families of the recording's names (folded_name.hpp); each name is folded once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "trace/folded_name.hpp"

namespace memlab::trace {

class NameFamilies {
  public:
    /// The number of the family of the string with this id. May throw std::bad_alloc.
    std::uint32_t intern(std::uint32_t id, const std::string& text) {
        if (id >= family_by_string_.size()) {
            family_by_string_.resize(std::size_t{id} + 1);
        }
        if (family_by_string_[id] == 0) {
            const auto [at, is_new] =
                index_.try_emplace(folded_name(text), static_cast<std::uint32_t>(texts_.size()));
            if (is_new) {
                texts_.push_back(at->first);
            }
            family_by_string_[id] = at->second + 1;
        }
        return family_by_string_[id] - 1;
    }

    const std::string& text(std::uint32_t family) const { return texts_[family]; }

    std::size_t size() const { return texts_.size(); }

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.texts_);
        if constexpr (Archive::reading) {
            for (std::size_t i = 0; i < self.texts_.size(); ++i) {
                self.index_.emplace(self.texts_[i], static_cast<std::uint32_t>(i));
            }
        }
    }

  private:
    std::vector<std::uint32_t> family_by_string_;  ///< by string id: family + 1; 0: not folded yet
    std::unordered_map<std::string, std::uint32_t> index_;
    std::vector<std::string> texts_;
};

}  // namespace memlab::trace
