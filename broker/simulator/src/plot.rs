//! Draws a comparison: a chart for each metric, a bar for each policy, the bound as a line.
//!
//! Texts are written in whatever sans-serif font the viewer has; places for them are reckoned
//! from the number of their characters.

mod scale;

use plotters::coord::Shift;
use plotters::prelude::{
    DrawingArea, IntoDrawingArea, IntoFont, PathElement, RGBColor, Rectangle, SVGBackend,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontStyle, TextStyle};

use self::scale::{Scale, shown};
use crate::catalogue::unit_of;
use crate::comparison::{Comparison, Spreads};
use crate::scenario::{Better, Metric, Scenario};
use crate::seeds::Seeds;
use crate::spread::Spread;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const PAPER: RGBColor = RGBColor(255, 255, 255);
const INK: RGBColor = RGBColor(31, 41, 55);
const FAINT_INK: RGBColor = RGBColor(107, 114, 128);
const GRID: RGBColor = RGBColor(229, 231, 235);
const OTHERS: RGBColor = RGBColor(147, 170, 200);
const OURS: RGBColor = RGBColor(22, 128, 92);
const BOUND: RGBColor = RGBColor(194, 65, 12);

/// The policy that stands out.
const OUR_POLICY: &str = "gleaner";

/// Charts beside each other.
const COLUMNS: usize = 2;
const CHART_WIDTH: i32 = 450;
const MARGIN: i32 = 16;
const HEADER_HEIGHT: i32 = 58;
/// The metric's name and what the bound is.
const TITLE_HEIGHT: i32 = 46;
/// The numbers below a chart.
const AXIS_HEIGHT: i32 = 34;
const BAR_HEIGHT: i32 = 16;
const BAR_GAP: i32 = 6;
/// How wide a character of a label is, on average.
const CHARACTER_WIDTH: i32 = 7;
/// Between a bar's name or number and the bar.
const LABEL_GAP: i32 = 6;
const DASH: i32 = 5;

const FONT: &str = "sans-serif";
const FONT_LARGE: i32 = 20;
const FONT_NORMAL: i32 = 16;
const FONT_SMALL: i32 = 14;

/// Why a drawing in memory does not fail.
const IN_MEMORY: &str = "an SVG in memory can be written";

/// Draws it, as an SVG document.
#[must_use]
pub fn plot(scenario: &dyn Scenario, comparison: &Comparison) -> String {
    let brought = |metric: &&Metric| {
        comparison.policies.iter().any(|(_, numbers)| numbers.contains_key(metric.name))
    };
    let metrics: Vec<&Metric> = scenario.metrics().iter().filter(brought).collect();
    let bars = i32::try_from(comparison.policies.len()).expect("a few policies");
    let bars_height = bars * (BAR_HEIGHT + BAR_GAP);
    let chart_height = TITLE_HEIGHT + bars_height + AXIS_HEIGHT;
    let rows = metrics.len().div_ceil(COLUMNS);
    let count = |number: usize| i32::try_from(number).expect("a few charts");
    let width = MARGIN + count(COLUMNS) * (CHART_WIDTH + MARGIN);
    let height = HEADER_HEIGHT + count(rows) * (chart_height + MARGIN);
    let size = (width.cast_unsigned(), height.cast_unsigned());
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    area.fill(&PAPER).expect(IN_MEMORY);
    header(&area, scenario, comparison);
    for (place, metric) in metrics.iter().enumerate() {
        let column = count(place % COLUMNS);
        let row = count(place / COLUMNS);
        let x = MARGIN + column * (CHART_WIDTH + MARGIN);
        let y = HEADER_HEIGHT + row * (chart_height + MARGIN);
        chart(&area, (x, y), metric, comparison);
    }
    area.present().expect(IN_MEMORY);
    drop(area);
    svg
}

fn header(area: &Area<'_>, scenario: &dyn Scenario, comparison: &Comparison) {
    let seeds = match &comparison.seeds {
        Seeds::One(seed) => format!("seed {seed}"),
        several @ Seeds::Several(_) => {
            format!("means over the seeds {several} with 95 % confidence")
        }
    };
    let name = format!("{}, {seeds}", comparison.scenario);
    text(area, (MARGIN, 20), &name, &style(FONT_LARGE, INK, HPos::Left).bold());
    text(area, (MARGIN, 42), scenario.about(), &style(FONT_SMALL, FAINT_INK, HPos::Left).plain());
}

/// The chart of one metric, with its upper left corner at `corner`.
fn chart(area: &Area<'_>, corner: (i32, i32), metric: &Metric, comparison: &Comparison) {
    let (left, top) = corner;
    let better = match metric.better {
        Better::Higher => "higher is better",
        Better::Lower => "lower is better",
        Better::Neither => "",
    };
    let unit = unit_of(metric.name).map(|unit| format!("{unit} · ")).unwrap_or_default();
    let bold = style(FONT_NORMAL, INK, HPos::Left).bold();
    text(area, (left, top + 10), metric.name, &bold);
    let about = style(FONT_SMALL, FAINT_INK, HPos::Right).plain();
    text(
        area,
        (left + CHART_WIDTH, top + 10),
        format!("{unit}{better}").trim_end_matches(" · "),
        &about,
    );

    let bound = comparison.bound.get(metric.name).map(Spread::mean);
    let names = comparison.policies.iter().map(|(name, _)| name.chars().count());
    let longest = i32::try_from(names.max().unwrap_or_default()).expect("a short name");
    let from = left + longest * CHARACTER_WIDTH + 2 * LABEL_GAP;
    let to = left + CHART_WIDTH - label_width(metric, comparison);
    let numbers = comparison.policies.iter().filter_map(|(_, of)| of.get(metric.name));
    let ends = numbers.flat_map(|spread| {
        let off = spread.ci95().unwrap_or_default();
        [spread.mean() - off, spread.mean() + off]
    });
    let scale = Scale::of(ends.chain(bound), (from, to));

    let bars_top = top + TITLE_HEIGHT;
    let bars = i32::try_from(comparison.policies.len()).expect("a few policies");
    let bars_bottom = bars_top + bars * (BAR_HEIGHT + BAR_GAP);
    for tick in scale.ticks() {
        let x = scale.place(tick);
        line(area, (x, bars_top - 4), (x, bars_bottom), GRID, 1);
        let small = style(FONT_SMALL, FAINT_INK, HPos::Center).plain();
        text(area, (x, bars_bottom + 12), &shown(tick), &small);
    }
    for (place, (name, numbers)) in (0..).zip(&comparison.policies) {
        let y = bars_top + place * (BAR_HEIGHT + BAR_GAP);
        bar(area, (left, y), (name, numbers), metric, &scale);
    }
    let zero = scale.place(0.0);
    line(area, (zero, bars_top - 4), (zero, bars_bottom), FAINT_INK, 1);
    if let Some(bound) = bound {
        let x = scale.place(bound);
        let mut y = bars_top - 6;
        while y < bars_bottom {
            line(area, (x, y), (x, (y + DASH).min(bars_bottom)), BOUND, 2);
            y += 2 * DASH;
        }
        let anchor = if x > (from + to) / 2 { HPos::Right } else { HPos::Left };
        let small = style(FONT_SMALL, BOUND, anchor).plain();
        text(area, (x, bars_top - 14), &format!("bound {}", shown(bound)), &small);
    }
}

/// One policy's bar with its name before it and its number at the right end.
fn bar(area: &Area<'_>, corner: (i32, i32), of: (&str, &Spreads), metric: &Metric, scale: &Scale) {
    let ((left, top), (name, numbers)) = (corner, of);
    let middle = top + BAR_HEIGHT / 2;
    let ours = name == OUR_POLICY;
    let label = style(FONT_SMALL, INK, HPos::Right);
    let label = if ours { label.bold() } else { label.plain() };
    let (from, _) = scale.ends();
    text(area, (from - LABEL_GAP, middle), name, &label);
    let number = style(FONT_SMALL, INK, HPos::Right);
    let number = if ours { number.bold() } else { number.plain() };
    text(area, (left + CHART_WIDTH, middle), &label_of(metric, numbers), &number);
    let Some(spread) = numbers.get(metric.name) else { return };
    let (zero, end) = (scale.place(0.0), scale.place(spread.mean()));
    let corners = [(zero.min(end), top), (zero.max(end), top + BAR_HEIGHT)];
    let colour = if ours { OURS } else { OTHERS };
    area.draw(&Rectangle::new(corners, colour.filled())).expect(IN_MEMORY);
    if let Some(off) = spread.ci95() {
        let (least, most) = (scale.place(spread.mean() - off), scale.place(spread.mean() + off));
        line(area, (least, middle), (most, middle), INK, 1);
        for x in [least, most] {
            line(area, (x, middle - 3), (x, middle + 3), INK, 1);
        }
    }
}

/// The number at the right end of a bar's line.
fn label_of(metric: &Metric, numbers: &Spreads) -> String {
    match numbers.get(metric.name).map(|spread| (spread.mean(), spread.ci95())) {
        Some((mean, Some(off))) => format!("{} ± {}", shown(mean), shown(off)),
        Some((mean, None)) => shown(mean),
        None => "none".to_owned(),
    }
}

/// Room for the longest number at the right end.
fn label_width(metric: &Metric, comparison: &Comparison) -> i32 {
    let labels = comparison.policies.iter().map(|(_, numbers)| label_of(metric, numbers));
    let longest = labels.map(|label| label.chars().count()).max().unwrap_or_default();
    i32::try_from(longest).expect("a short number") * CHARACTER_WIDTH + 2 * LABEL_GAP
}

fn line(area: &Area<'_>, from: (i32, i32), to: (i32, i32), colour: RGBColor, width: u32) {
    let element = PathElement::new(vec![from, to], colour.stroke_width(width));
    area.draw(&element).expect(IN_MEMORY);
}

fn text(area: &Area<'_>, at: (i32, i32), words: &str, style: &TextStyle<'_>) {
    area.draw_text(words, style, at).expect(IN_MEMORY);
}

/// How a text looks, before it is said whether it stands out.
struct Look {
    size: i32,
    colour: RGBColor,
    anchor: HPos,
}

fn style(size: i32, colour: RGBColor, anchor: HPos) -> Look {
    Look { size, colour, anchor }
}

impl Look {
    fn plain(self) -> TextStyle<'static> {
        self.with(FontStyle::Normal)
    }

    fn bold(self) -> TextStyle<'static> {
        self.with(FontStyle::Bold)
    }

    fn with(self, weight: FontStyle) -> TextStyle<'static> {
        let font = (FONT, self.size).into_font().style(weight).color(&self.colour);
        font.pos(Pos::new(self.anchor, VPos::Center))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::{Parameter, Settings};
    use crate::scenario::{Numbers, Order, Outcome, Progress};

    struct Farm;

    const METRICS: [Metric; 3] = [
        Metric { name: "completed", about: "", better: Better::Higher },
        Metric { name: "turnaround_p50_s", about: "", better: Better::Lower },
        Metric { name: "scheduling_us_per_job", about: "", better: Better::Lower },
    ];

    impl Scenario for Farm {
        fn name(&self) -> &'static str {
            "farm"
        }
        fn about(&self) -> &'static str {
            "a farm of <hosts> & desktops"
        }
        fn parameters(&self) -> Vec<Parameter> {
            Vec::new()
        }
        fn policies(&self) -> &'static [&'static str] {
            &["plain", "gleaner"]
        }
        fn metrics(&self) -> &'static [Metric] {
            &METRICS
        }
        fn run(&self, order: &Order<'_>, _: &dyn Progress) -> Result<Outcome, String> {
            let numbers = |more| {
                let completed = 800.0 + more + order.seed as f64;
                Numbers::from([("completed", completed), ("turnaround_p50_s", 9.5 - more / 100.0)])
            };
            Ok(Outcome {
                bound: Numbers::from([("completed", 1600.0)]),
                policies: vec![("plain", numbers(0.0)), ("gleaner", numbers(400.0))],
            })
        }
    }

    fn drawn(seeds: Seeds) -> String {
        let mut comparison = Comparison::new("farm", seeds.clone(), Settings::default());
        for seed in seeds.iter() {
            let settings = Settings::default();
            let order = Order { settings: &settings, seed, policies: &[], measure: false };
            comparison.add(&Farm.run(&order, &crate::scenario::Quiet).expect("it runs"));
        }
        plot(&Farm, &comparison)
    }

    /// Widths of the bars of a colour.
    fn widths(svg: &str, colour: &str) -> Vec<u32> {
        let bars = svg.lines().filter(|line| line.starts_with("<rect") && line.contains(colour));
        let width = |line: &str| line.split("width=\"").nth(1)?.split('"').next()?.parse().ok();
        bars.map(|line| width(line).expect("a width")).collect()
    }

    #[test]
    fn bars_are_as_long_as_the_numbers_are_great_and_the_bound_ends_the_axis() {
        let svg = drawn(Seeds::One(0));
        let (others, ours) = (widths(&svg, "#93AAC8"), widths(&svg, "#16805C"));
        // What nobody measured has no chart.
        assert_eq!((others.len(), ours.len()), (2, 2), "{svg}");
        assert!((others[0] * 3 / 2).abs_diff(ours[0]) <= 1, "800 and 1200: {others:?} {ours:?}");
        assert!(others[1] > ours[1], "9.5 s and 5.5 s: {others:?} {ours:?}");
        for word in ["farm, seed 0", "bound 1600", "higher is better", "&lt;hosts&gt; &amp;"] {
            assert!(svg.contains(word), "no {word:?} in {svg}");
        }
        assert!(!svg.contains("scheduling_us"), "{svg}");
    }

    #[test]
    fn of_several_seeds_it_shows_the_confidence_and_the_same_bytes_each_time() {
        let svg = drawn(Seeds::Several(0..5));
        assert!(svg.contains("802 ± 1.96"), "{svg}");
        assert_eq!(svg, drawn(Seeds::Several(0..5)));
    }
}
