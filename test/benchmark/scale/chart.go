// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

// The dimensions of the chart, in points.
const (
	chartWidth  = 640
	chartHeight = 400
	chartMargin = 12
	textSize    = 11
)

// curve is a value in the chart.
type curve struct {
	name   string
	color  color.Color
	dashes []vg.Length
	value  func(*step) float64
}

// curves have colors that readers with red-green color blindness can distinguish.
func curves() []curve {
	processors := func(of func(*step) *cost) func(*step) float64 {
		return func(s *step) float64 { return (of(s).server + of(s).manager).Seconds() }
	}
	return []curve{
		{"Proportional", color.Gray{Y: 0x80}, []vg.Length{4, 3}, func(s *step) float64 { return float64(s.namespaces) }},
		{"Live heap", color.RGBA{R: 0x33, G: 0x33, B: 0x33, A: 0xff}, nil,
			func(s *step) float64 { return s.idle.gauges[liveHeap] }},
		{"Creation, processor time", color.RGBA{R: 0x1f, G: 0x5f, B: 0xa8, A: 0xff}, nil, processors(creationOf)},
		{"Template change, processor time of each namespace", color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 0xff}, nil,
			processors(changeOf)},
		{"Deletion, processor time", color.RGBA{R: 0x99, G: 0x33, B: 0x77, A: 0xff}, nil, processors(deletionOf)},
	}
}

// chart returns the chart as SVG.
func (o *outcome) chart() ([]byte, error) {
	p, err := o.newPlot()
	if err != nil {
		return nil, err
	}
	canvas := vgsvg.New(chartWidth, chartHeight)
	whole := draw.New(canvas)
	whole.SetColor(color.White)
	whole.Fill(whole.Path())
	p.Draw(draw.Crop(whole, chartMargin, -chartMargin, chartMargin, -chartMargin))
	return harness.EncodeSVG(canvas), nil
}

// newPlot draws each value relative to that of the first step. Both axes are logarithmic, so that the
// exponent is the slope of a line.
func (o *outcome) newPlot() (*plot.Plot, error) {
	p := plot.New()
	p.BackgroundColor = nil
	p.X.Label.Text, p.Y.Label.Text = "Namespaces", "Times the first value"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(o.sizeTicks), plot.TickerFunc(timesTicks)
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, 2
	for _, style := range []*text.Style{
		&p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		style.Font.Variant, style.Font.Size = "Sans", textSize
	}
	for _, one := range curves() {
		sizes, values := o.series(one.value)
		exponent, ok := fitExponent(sizes, values)
		if !ok { // A value of 0 or less is not on the axis.
			continue
		}
		points := make(plotter.XYs, len(sizes))
		for i := range sizes {
			points[i] = plotter.XY{X: sizes[i], Y: values[i] / values[0]}
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return nil, fmt.Errorf("failed to draw %s: %w", one.name, err)
		}
		line.Color, line.Dashes, line.Width = one.color, one.dashes, 2
		p.Add(line)
		p.Legend.Add(fmt.Sprintf("%s: exponent %.2f", one.name, exponent), line)
	}
	return p, nil
}

// sizeTicks returns a tick for each step.
func (o *outcome) sizeTicks(_, _ float64) []plot.Tick {
	var ticks []plot.Tick
	for _, s := range o.steps {
		ticks = append(ticks, plot.Tick{Value: float64(s.namespaces), Label: fmt.Sprint(s.namespaces)})
	}
	return ticks
}

// timesTicks returns the powers of two.
func timesTicks(least, most float64) []plot.Tick {
	var ticks []plot.Tick
	for value := math.Exp2(math.Ceil(math.Log2(least))); value <= most; value *= 2 {
		ticks = append(ticks, plot.Tick{Value: value, Label: fmt.Sprintf("%g", value)})
	}
	return ticks
}
