//! Which keys a branch takes from another: retention policies, and what merge commits say of them.
