//! Compares the framework with bare kube-runtime and with Go's controller-runtime: one controller, written three times.
//!
//! Each is a program of its own, for objects of one kind, [`pair::Pair`]: `pairs-framework` and `pairs-kube-runtime` (in
//! `src/bin`), and `go/`. [`pair`] defines the desired state, and [`options`] the flags. In a [`turn`], one of them works on
//! a kube-apiserver of its own: a [`contestant`] is the process, [`requests`] counts its requests, [`reconciles`] its
//! reconciles. A [`run`] consists of turns of all of them, and a [`report`] shows the results.

pub mod contestant;
pub mod options;
pub mod pair;
pub mod reconciles;
pub mod report;
pub mod requests;
pub mod run;
pub mod turn;
