// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"image/color"
	"math"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/nslifecycle/nslifecycle/test/benchmark/internal/harness"
)

// The dimensions of a chart, in points.
const (
	panelWidth = 270
	labelWidth = 300
	rowHeight  = 30
	barHeight  = 11
	// headHeight is the height of the legend, and axesHeight is the height of the titles and the axes.
	headHeight = 36
	axesHeight = 48
	margin     = 12
	textSize   = 11
)

// sideColors are distinguishable in grayscale and for readers with red-green color blindness.
var sideColors = [2]color.Color{
	peer: color.RGBA{R: 0x9a, G: 0xa5, B: 0xb1, A: 0xff},
	ours: color.RGBA{R: 0x1f, G: 0x5f, B: 0xa8, A: 0xff},
}

var gridColor = color.Gray{Y: 0xd4}

// charts draws a chart for each number of API servers, and returns the files by path.
func (r *report) charts(path string) map[string][]byte {
	byServers := map[int][]*line{}
	for _, l := range r.measured() {
		byServers[l.servers] = append(byServers[l.servers], l)
	}
	files := map[string][]byte{}
	for servers, lines := range byServers {
		name, title := path, "one API server"
		if servers > 1 {
			title = "two API servers"
			if len(byServers) > 1 {
				extension := filepath.Ext(path)
				name = strings.TrimSuffix(path, extension) + "-two-servers" + extension
			}
		}
		files[name] = drawChart(title, lines)
	}
	return files
}

// panel is one half of a chart.
type panel struct {
	title string
	// value returns the value of a line and side, or 0 if there is none.
	value  func(l *line, side int) float64
	format func(value float64) string
	// least is an upper bound for the start of the axis. The axis starts at the greatest power of
	// ten that is not greater than least or any value.
	least float64
}

func panels() [2]panel {
	return [2]panel{
		{title: "Time to removal, seconds", least: 0.1,
			value:  func(l *line, side int) float64 { return l.medianTime(side).Seconds() },
			format: func(value float64) string { return fmt.Sprintf("%.1f", value) }},
		{title: "Requests", least: 1,
			value:  func(l *line, side int) float64 { return float64(l.medianRequests(side)) },
			format: func(value float64) string { return formatCount(int64(value)) }},
	}
}

// drawChart draws one row for each line, with two bars in each of two panels.
func drawChart(subtitle string, lines []*line) []byte {
	canvas := vgsvg.New(chartSize(len(lines)))
	drawPanels(draw.New(canvas), subtitle, lines)
	return harness.EncodeSVG(canvas)
}

func chartSize(lines int) (width, height vg.Length) {
	return labelWidth + 2*panelWidth + 3*margin, vg.Length(lines*rowHeight + headHeight + axesHeight + margin)
}

func drawPanels(whole draw.Canvas, subtitle string, lines []*line) {
	whole.SetColor(color.White)
	whole.Fill(whole.Path())
	drawHead(whole, subtitle)
	halves := panels()
	left := draw.Crop(whole, labelWidth, -panelWidth-2*margin, margin, -headHeight)
	newPanel(halves[0], lines, whole.Min.X+margin).Draw(left)
	newPanel(halves[1], lines, 0).Draw(draw.Crop(whole, labelWidth+panelWidth+2*margin, -margin, margin, -headHeight))
}

// drawHead draws the title and the legend above both panels.
func drawHead(whole draw.Canvas, subtitle string) {
	style := newStyle(textSize + 1)
	at := vg.Point{X: whole.Min.X + margin, Y: whole.Max.Y - headHeight/2}
	whole.FillText(style, at, "Finalization, "+subtitle)
	at.X += labelWidth
	for side, name := range legendNames {
		whole.FillPolygon(sideColors[side], []vg.Point{
			{X: at.X, Y: at.Y - barHeight/2}, {X: at.X, Y: at.Y + barHeight/2},
			{X: at.X + barHeight, Y: at.Y + barHeight/2}, {X: at.X + barHeight, Y: at.Y - barHeight/2},
		})
		at.X += barHeight + 5
		whole.FillText(style, at, name)
		at.X += style.Width(name) + 2*margin
	}
}

func newStyle(size vg.Length) text.Style {
	style := text.Style{
		Color: color.Black, Font: font.From(plot.DefaultFont, size), YAlign: text.YCenter, Handler: plot.DefaultTextHandler,
	}
	style.Font.Variant = "Sans"
	return style
}

// newPanel returns one half of a chart. The labels of the rows start at labelsAt, unless it is 0. A viewer may use
// another font than the one that computes the width of a text, so a label that ended at the axis could overlap the
// bars.
func newPanel(half panel, lines []*line, labelsAt vg.Length) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.X.Label.Text, p.X.Label.Padding = half.title, 4
	for _, style := range []*text.Style{&p.X.Label.TextStyle, &p.X.Tick.Label} {
		style.Font.Variant = "Sans"
		style.Font.Size = textSize
	}
	bars := newBars(half, lines)
	bars.labelsAt = labelsAt
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.TickerFunc(powersOfTen)
	p.X.Min, p.X.Max = bars.least, bars.most
	p.HideY()
	p.Y.Min, p.Y.Max = -0.5, float64(len(lines))-0.5
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Width = gridColor, 0
	p.Add(grid, bars)
	// Add can widen the axis.
	p.X.Min, p.X.Max = bars.least, bars.most
	return p
}

// legendNames are the names of the sides in the legend.
var legendNames = [2]string{peer: "kube-controller-manager", ours: "nslifecycle"}

// bars plots horizontal bars, two in each row, with their values beside them. It replaces
// plotter.BarChart, whose bars start at 0, which a log axis does not contain.
type bars struct {
	half        panel
	lines       []*line
	least, most float64
	style       text.Style
	labelsAt    vg.Length
}

func newBars(half panel, lines []*line) *bars {
	b := &bars{half: half, lines: lines, least: half.least, most: half.least, style: newStyle(textSize - 2)}
	for _, l := range lines {
		for side := range l.samples {
			if value := half.value(l, side); value > 0 {
				b.least, b.most = min(b.least, value), max(b.most, value)
			}
		}
	}
	b.least = math.Pow10(int(math.Floor(math.Log10(b.least))))
	// Leave room for the numbers beside the longest bars.
	b.most = max(b.most*math.Pow(b.most/b.least, 0.22), b.least*10)
	return b
}

// Plot draws the bars.
func (b *bars) Plot(canvas draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&canvas)
	for i, l := range b.lines {
		middle := y(float64(len(b.lines) - 1 - i))
		if b.labelsAt > 0 {
			canvas.FillText(newStyle(textSize), vg.Point{X: b.labelsAt, Y: middle}, l.scenario.title)
		}
		for side := range l.samples {
			value := b.half.value(l, side)
			if value <= 0 {
				continue
			}
			// The peer's bar is above the middle of the row, and nslifecycle's bar is below it.
			bottom := middle
			if side == ours {
				bottom = middle - barHeight
			}
			end := x(value)
			canvas.FillPolygon(sideColors[side], []vg.Point{
				{X: canvas.Min.X, Y: bottom}, {X: canvas.Min.X, Y: bottom + barHeight - 1},
				{X: end, Y: bottom + barHeight - 1}, {X: end, Y: bottom},
			})
			canvas.FillText(b.style, vg.Point{X: end + 3, Y: bottom + barHeight/2}, b.half.format(value))
		}
	}
}

// powersOfTen are the ticks of a log axis.
func powersOfTen(least, most float64) []plot.Tick {
	var ticks []plot.Tick
	for value := least; value <= most; value *= 10 {
		ticks = append(ticks, plot.Tick{Value: value, Label: formatPower(value)})
	}
	return ticks
}

// formatPower formats a power of ten in a short form.
func formatPower(value float64) string {
	switch {
	case value >= 999_999:
		return fmt.Sprintf("%gM", math.Round(value/1e6))
	case value >= 999:
		return fmt.Sprintf("%gk", math.Round(value/1e3))
	}
	return fmt.Sprintf("%.3g", value)
}
