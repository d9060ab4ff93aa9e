//! The framework side by side with bare kube-runtime and with Go's controller-runtime: one controller, written three times.
//!
//! Each is a program of its own, for one kind of object, a [`pair::Pair`]: `pairs-framework` and `pairs-kube-runtime` (in `src/bin`), and `go/`. What it
//! has to make of an object is in [`pair`]; how it is started, in [`options`]. A [`turn`] lets one of them work on a kube-apiserver of its own: a
//! [`contestant`] is the process, [`requests`] counts what it asks for, [`reconciles`] what it has done. A [`run`] is turns of all of them, and a
//! [`report`] says what came out.

pub mod contestant;
pub mod options;
pub mod pair;
pub mod reconciles;
pub mod report;
pub mod requests;
pub mod run;
pub mod turn;
