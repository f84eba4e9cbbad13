//! Problems and their exact answers.
//!
//! | module | contents |
//! |---|---|
//! | [`trajectory`] | x = (h, s, c), how episodes end |
//! | [`env`](mod@env) | the interface between an agent and a problem |
//! | [`model`] | the table P_h, r_h that is both sampled and integrated |
//! | [`problems`] | the built-in problems, by name |
//! | [`csv`](mod@csv) | MDP files |
//! | [`records`] | rows of delimited text, with the habits of spreadsheets |
//! | [`log`](mod@log) | logs of episodes, and the table that they suggest |
//! | [`counts`] | how often every outcome was seen |
//! | [`tabular`] | the simulator, which samples the table |
//! | [`check`] | a conformance check for any environment, including users' own |
//! | [`evaluate`] | the exact law of R^π for any policy |
//! | [`plan`] | exact planners with certificates |
//! | [`returns`] | the set of possible returns, and what to do when it is too large |

pub mod check;
pub mod counts;
pub mod csv;
pub mod env;
pub mod evaluate;
pub mod lanes;
pub mod log;
pub mod model;
pub mod plan;
pub mod problems;
pub mod records;
pub mod returns;
pub mod tabular;
pub mod trajectory;
