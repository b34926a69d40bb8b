// Pauses drafting while the drafter is consistently wrong.
#pragma once

namespace ospec {

// After `streak` rounds in a row without an accepted token the next `cooldown` rounds decode one
// token each without a draft; then one round drafts again. A paused round says nothing about the
// drafter, so it never counts towards the next streak: with streak 1 drafting resumes too.
class skip_policy {
  public:
    // Asked once per round that could draft; true: this round goes without.
    bool skip() {
        if (pause == 0) {
            return false;
        }
        pause--;
        return true;
    }

    // Told the result of a round that drafted.
    void round(int n_accepted, int streak, int cooldown) {
        zeros = n_accepted == 0 ? zeros + 1 : 0;
        if (streak > 0 && zeros >= streak) {
            zeros = 0;
            pause = cooldown;
        }
    }

  private:
    int zeros = 0;
    int pause = 0;
};

} // namespace ospec
