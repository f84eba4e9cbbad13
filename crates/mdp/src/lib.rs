//! Problems and their exact answers.
//!
//! | module | contents |
//! |---|---|
//! | [`trajectory`] | x = (h, s, c), how episodes end |
//! | [`env`](mod@env) | the interface between an agent and a problem |
//! | [`model`] | the table P_h, r_h that is both sampled and integrated |
//! | [`problems`] | the built-in problems, by name |
//! | [`csv`](mod@csv) | MDP files |
//! | [`tabular`] | the simulator, which samples the table |
//! | [`check`] | a conformance check for any environment, including users' own |
//! | [`evaluate`] | the exact law of R^π for any policy |
//! | [`plan`] | exact planners with certificates |
//! | [`returns`] | the set of possible returns, and what to do when it is too large |

pub mod check;
pub mod csv;
pub mod env;
pub mod evaluate;
pub mod lanes;
pub mod model;
pub mod plan;
pub mod problems;
pub mod returns;
pub mod tabular;
pub mod trajectory;
