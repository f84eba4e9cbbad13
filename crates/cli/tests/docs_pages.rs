//! The commands of `docs/your-own-problem.md` do what the page says.

mod support;

use support::Desk;

/// The commands in blocks of a page that are marked as shell.
fn commands(page: &str) -> Vec<Vec<String>> {
    let blocks = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let lines = blocks.flat_map(str::lines).filter(|line| line.starts_with("bqrl "));
    lines
        .map(|line| {
            let parts = line.split('"').enumerate();
            // Every other part was in quotes.
            let words = parts.flat_map(|(place, part)| match place % 2 {
                0 => part.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
                _ => vec![part.to_owned()],
            });
            words.skip(1).collect()
        })
        .collect()
}

#[test]
fn the_page_about_your_own_problem_can_be_followed() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let page = std::fs::read_to_string(format!("{docs}/your-own-problem.md")).unwrap();
    let desk = Desk::new();
    desk.write("shop-log.csv", std::fs::read(format!("{docs}/examples/shop-log.csv")).unwrap());
    let commands = commands(&page);
    assert_eq!(commands.len(), 5);
    let mut said = Vec::new();
    for command in &commands {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        said.push(desk.ok(&words));
    }
    assert!(said[0].contains("1500 episodes, 6000 transitions"), "{}", said[0]);
    assert!(said[1].contains("with 95 % confidence, 9 times in 10 at least"), "{}", said[1]);
    assert!(said[1].contains("Your data do not support more than this"), "{}", said[1]);
    assert!(said[2].contains("bootstrap"), "{}", said[2]);
    assert!(said[3].contains("instead of"), "{}", said[3]);
    assert!(said[4].contains("Choose order-"), "{}", said[4]);
    for file in ["shop.csv", "promised.csv", "laws.svg"] {
        assert!(desk.path(file).exists(), "{file}");
    }
}
