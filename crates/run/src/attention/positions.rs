//! Figures of position encodings: sinusoids as waves and as a heatmap, and the effect that an
//! encoding has on a pair of tokens depending on their distance.

use anyhow::{Context, Result};
use candle_core::{Device, Tensor};
use taper_model::positions::{alibi_slopes, sinusoids, t5_bucket};
use taper_model::{ModelConfig, Positions};
use taper_ops::rotary;
use taper_plots::{Axis, Chart, Figure, Heatmap, Language, Series};

/// Largest number of dimensions whose waves are drawn; more curves could not be told apart.
const WAVES: usize = 8;
/// Largest number of positions (rows) in the heatmap.
const MOST_ROWS: usize = 64;
/// Largest number of dimensions (columns) in the heatmap.
const MOST_COLUMNS: usize = 128;
/// Largest number of heads for which ALiBi is drawn. ALiBi subtracts from an attention score the
/// distance of the two tokens, times a slope that differs between heads.
const SLOPES: usize = 8;

/// Effect of a position encoding on a pair of tokens, depending on their distance.
#[derive(Debug, Clone, PartialEq)]
pub struct ByDistance {
    /// Name of the encoding in configuration files, sometimes with more words, as in `alibi, head
    /// 1`.
    pub name: String,
    /// Effect at each distance, in tokens, from 0.
    pub values: Vec<f64>,
}

/// Figures of position encodings for a model of a given shape. They show what formulas determine,
/// so they need no trained model.
#[derive(Debug, Clone)]
pub struct PositionFigures {
    config: ModelConfig,
    count: usize,
    language: Language,
}

impl PositionFigures {
    /// Figures for a model of the shape `config` and for `count` positions, in a language.
    #[must_use]
    pub fn new(config: &ModelConfig, count: usize, language: Language) -> Self {
        Self { config: config.clone(), count: count.max(2), language }
    }

    const fn say<'a>(&self, english: &'a str, chinese: &'a str) -> &'a str {
        self.language.choose(english, chinese)
    }

    /// Position encoding of the model.
    #[must_use]
    pub fn chosen(&self) -> Positions {
        self.config.positions
    }

    fn table(&self) -> Vec<Vec<f64>> {
        let halves = self.config.positions == Positions::SinusoidalHalves;
        let width = self.config.d_model;
        let frequencies = self.config.sinusoid_frequencies;
        let first = self.config.position_offset;
        let table = sinusoids(first..first + self.count, width, halves, frequencies);
        table.chunks(width).map(|row| row.iter().map(|x| f64::from(*x)).collect()).collect()
    }

    /// Figure of the first dimensions of the sinusoids, each as a function of the position.
    #[must_use]
    pub fn waves(&self) -> Figure {
        let table = self.table();
        let series = |column: usize| {
            let point = |(position, row): (usize, &Vec<f64>)| (position as f64, row[column]);
            Series::line(
                format!("{} {column}", self.say("dimension", "维度")),
                table.iter().enumerate().map(point).collect(),
            )
        };
        let count = WAVES.min(self.config.d_model);
        let chart = Chart::new(
            Axis::linear(self.say("position", "位置")),
            Axis::linear(self.say("value", "值")).between(-1.05, 1.05),
            (0..count).map(series).collect(),
        );
        let (width, positions) = (self.config.d_model, self.count);
        let description = match self.language {
            Language::English => format!(
                "The first {count} of {width} dimensions of the sinusoids over {positions} \
                 positions: each pair of them is a slower wave."
            ),
            Language::Chinese => format!(
                "正弦编码 {width} 个维度中的前 {count} 个在 {positions} 个位置上的值：每一对的波都更慢。"
            ),
        };
        let title =
            self.say("Sinusoids: waves of the first dimensions", "正弦编码：前几个维度的波");
        Figure::new(title, description, chart)
    }

    /// Heatmap of the sinusoids, with positions as rows and dimensions as columns.
    #[must_use]
    pub fn heatmap(&self) -> Figure {
        let table = self.table();
        let (rows, columns) = (self.count.min(MOST_ROWS), self.config.d_model.min(MOST_COLUMNS));
        let names = |count: usize| (0..count).map(|number| number.to_string()).collect::<Vec<_>>();
        let heatmap = Heatmap {
            row_label: self.say("position", "位置").to_owned(),
            column_label: self.say("dimension", "维度").to_owned(),
            rows: names(rows),
            columns: names(columns),
            values: table.into_iter().take(rows).map(|row| row[..columns].to_vec()).collect(),
            strongest: Some(1.0),
        };
        let description = match self.language {
            Language::English => format!(
                "Sinusoids of {rows} positions in {columns} dimensions: fast waves on the left, \
                 slow ones on the right."
            ),
            Language::Chinese => {
                format!("{rows} 个位置、{columns} 个维度的正弦编码：左边的波快，右边的波慢。")
            }
        };
        let title = self.say("Sinusoids: position by dimension", "正弦编码：位置与维度");
        Figure::new(title, description, heatmap).sized(860, 520)
    }

    /// Effect of each encoding on a pair of tokens, depending on their distance:
    ///
    /// - Sinusoids: the dot product of the vectors of both positions, divided by its value at
    ///   distance 0.
    /// - Rotary positions: the dot product of two vectors of ones, each rotated by its position,
    ///   divided by its value at distance 0.
    /// - ALiBi: the amount added to the attention score, for some of the heads.
    /// - T5: the index of the distance's bucket. The bias of each bucket is trained, so it is not
    ///   known here. Learned positions are left out for the same reason.
    ///
    /// # Errors
    /// When the width of a head is odd, because rotary positions rotate its dimensions in pairs.
    pub fn by_distance(&self) -> Result<Vec<ByDistance>> {
        let table = self.table();
        let product = |row: &Vec<f64>| row.iter().zip(&table[0]).map(|(a, b)| a * b).sum::<f64>();
        let at_zero = product(&table[0]);
        let mut effects = vec![ByDistance {
            name: "sinusoidal".to_owned(),
            values: table.iter().map(|row| product(row) / at_zero).collect(),
        }];
        effects.push(ByDistance { name: "rotary".to_owned(), values: self.turned()? });
        let slopes = alibi_slopes(self.config.heads);
        let chosen = slopes.len().div_ceil(SLOPES);
        for (head, slope) in slopes.iter().enumerate().step_by(chosen) {
            effects.push(ByDistance {
                name: format!("alibi, head {}", head + 1),
                values: (0..self.count).map(|distance| -slope * distance as f64).collect(),
            });
        }
        let buckets = self.config.relative();
        let bucket = |distance| t5_bucket(distance, 0, true, buckets) as f64;
        effects.push(ByDistance {
            name: "t5, bucket".to_owned(),
            values: (0..self.count).map(bucket).collect(),
        });
        Ok(effects)
    }

    /// For each position, the dot product of two vectors of ones, divided by their width, which is
    /// the width of a head. One vector is rotated by this position, the other by position 0.
    fn turned(&self) -> Result<Vec<f64>> {
        let width = self.config.attention_shape().head_width;
        let ones = Tensor::ones((self.count, width), candle_core::DType::F64, &Device::Cpu)?;
        let positions = (0..self.count as u32).collect();
        let turns = self.config.rotary.turns(width);
        let turned = rotary(None, &ones, (&positions, turns), width, width)
            .with_context(|| format!("heads are {width} wide"))?;
        let rows = turned.to_vec2::<f64>()?;
        let product = |row: &Vec<f64>| row.iter().zip(&rows[0]).map(|(a, b)| a * b).sum::<f64>();
        Ok(rows.iter().map(|row| product(row) / width as f64).collect())
    }

    /// Figure of the dot products of [`PositionFigures::by_distance`] against the distance, for
    /// sinusoids and rotary positions.
    ///
    /// # Errors
    /// See [`PositionFigures::by_distance`].
    pub fn products(&self) -> Result<Figure> {
        let all = self.by_distance()?;
        let shown = all.into_iter().filter(|one| ["sinusoidal", "rotary"].contains(&&*one.name));
        let chart = Chart::new(
            Axis::linear(self.distance()),
            Axis::linear(self.say("product, of that at distance 0", "乘积，相对于距离 0")),
            shown.map(series).collect(),
        );
        let description = self.say(
            "The product of two positions depends on their distance alone, and falls with it, in \
             waves.",
            "两个位置的乘积只取决于距离，并随距离起伏下降。",
        );
        let title = self.say("Products of positions by distance", "位置的乘积与距离");
        Ok(Figure::new(title, description, chart))
    }

    /// Figure of the amount that ALiBi adds to attention scores, against the distance, for some of
    /// the heads.
    ///
    /// # Errors
    /// See [`PositionFigures::by_distance`].
    pub fn biases(&self) -> Result<Figure> {
        let all = self.by_distance()?;
        let shown = all.into_iter().filter(|one| one.name.starts_with("alibi"));
        let chart = Chart::new(
            Axis::linear(self.distance()),
            Axis::linear(self.say("added to the score", "加到分数上的值")),
            shown.map(series).collect(),
        );
        let description = self.say(
            "ALiBi lowers scores by the distance; each head has its own slope.",
            "ALiBi 按距离降低分数，每个头有自己的斜率。",
        );
        let title =
            self.say("ALiBi: what is added to scores, by distance", "ALiBi：加到分数上的值与距离");
        Ok(Figure::new(title, description, chart))
    }

    /// Figure of the index of T5's bucket against the distance, for a decoder and for an encoder.
    #[must_use]
    pub fn buckets(&self) -> Figure {
        let bucket_series = |causal: bool| {
            let bucket = |distance| t5_bucket(distance, 0, causal, self.config.relative()) as f64;
            let point = |distance| (distance as f64, bucket(distance));
            (0..self.count).map(point).collect()
        };
        let series = vec![
            Series::line(self.say("decoder", "解码器"), bucket_series(true)),
            Series::line(self.say("encoder, looking back", "编码器，向左看"), bucket_series(false)),
        ];
        let (distance, bucket) = (self.distance(), self.say("bucket", "桶"));
        let chart = Chart::new(Axis::linear(distance), Axis::linear(bucket), series);
        let description = self.say(
            "T5 learns a bias for each bucket: near distances have one each, far ones share them.",
            "T5 为每个桶学习一个偏置：近的距离各有一个，远的距离共用。",
        );
        Figure::new(self.say("T5: buckets of distances", "T5：距离的桶"), description, chart)
    }

    const fn distance(&self) -> &'static str {
        self.language.choose("distance in tokens", "距离（词元）")
    }

    /// All figures, each with a name for its file.
    ///
    /// # Errors
    /// See [`PositionFigures::by_distance`].
    pub fn figures(&self) -> Result<Vec<(&'static str, Figure)>> {
        Ok(vec![
            ("waves", self.waves()),
            ("heatmap", self.heatmap()),
            ("products", self.products()?),
            ("alibi", self.biases()?),
            ("t5", self.buckets()),
        ])
    }
}

fn series(one: ByDistance) -> Series {
    let points = one.values.iter().enumerate().map(|(distance, value)| (distance as f64, *value));
    Series::line(one.name.clone(), points.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_those_of_the_formulas() {
        let config = ModelConfig { d_model: 32, heads: 4, ..ModelConfig::default() };
        let figures = PositionFigures::new(&config, 40, Language::English);
        let all = figures.by_distance().unwrap();
        // Vaswani et al. 2017: the dot product is a mean of cosines, because the sine and the
        // cosine of each frequency give `sin a · sin b + cos a · cos b = cos(a - b)`. Su et al.
        // 2021, section 3.4.3: the same holds for rotary positions, with the width of a head in
        // place of the width of the model.
        let cosines = |width: usize, distance: usize| {
            let frequency = |pair: usize| 10_000_f64.powf(-2.0 * pair as f64 / width as f64);
            let sum = |pair| (frequency(pair) * distance as f64).cos();
            (0..width / 2).map(sum).sum::<f64>() / (width / 2) as f64
        };
        for distance in 0..40 {
            assert!((all[0].values[distance] - cosines(32, distance)).abs() < 1e-6);
            assert!((all[1].values[distance] - cosines(8, distance)).abs() < 1e-12);
            assert_eq!(all[2].values[distance], -0.25 * distance as f64, "2^(-8/4) of head 1");
        }
        let bucket = t5_bucket(20, 0, true, config.relative());
        assert_eq!(all.last().unwrap().values[20], bucket as f64);
        for (name, figure) in figures.figures().unwrap() {
            assert!(figure.draw().unwrap().standalone().starts_with("<svg"), "{name}");
        }
    }
}
