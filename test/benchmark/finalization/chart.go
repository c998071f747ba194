// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
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
)

// The measures of a chart.
const (
	panelWidth = 300
	labelWidth = 250
	rowHeight  = 34
	barHeight  = 11
	// marginHeight is for the title, the legend and the axis.
	marginHeight = 84
	textSize     = 11
	// leastBar is where the axis begins: the largest power of ten below the least value, but
	// not above this.
	leastBar = 1.0
)

// sideColors are told apart by those who see no red or no green, too, and in grey.
var sideColors = [2]color.Color{
	peer: color.RGBA{R: 0x9a, G: 0xa5, B: 0xb1, A: 0xff},
	ours: color.RGBA{R: 0x1f, G: 0x5f, B: 0xa8, A: 0xff},
}

var gridColor = color.Gray{Y: 0xe4}

// charts draws the cases of each number of API servers. It returns the files by path.
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

// panel is one half of a chart: a value of each line and side, 0 for none.
type panel struct {
	title  string
	value  func(l *line, side int) float64
	format func(value float64) string
}

func panels() [2]panel {
	return [2]panel{
		{"Time to gone, seconds", func(l *line, side int) float64 { return l.medianTime(side).Seconds() },
			func(value float64) string { return fmt.Sprintf("%.1f", value) }},
		{"Requests", func(l *line, side int) float64 { return float64(l.medianRequests(side)) },
			func(value float64) string { return formatCount(int64(value)) }},
	}
}

// drawChart draws one row for each line, with two bars in each of two panels.
func drawChart(subtitle string, lines []*line) []byte {
	height := vg.Length(len(lines)*rowHeight + marginHeight)
	canvas := vgsvg.New(labelWidth+2*panelWidth, height)
	whole := draw.New(canvas)
	for i, half := range panels() {
		p := newPanel(half, lines, i == 0, subtitle)
		left := vg.Length(0)
		right := vg.Length(panelWidth)
		if i == 1 {
			left, right = labelWidth+panelWidth, 0
		}
		p.Draw(draw.Crop(whole, left, -right, 0, 0))
	}
	var out bytes.Buffer
	// A buffer takes everything.
	_, _ = canvas.WriteTo(&out)
	return out.Bytes()
}

func newPanel(half panel, lines []*line, hasLabels bool, subtitle string) *plot.Plot {
	p := plot.New()
	p.Title.Text = half.title + " (" + subtitle + ")"
	p.Title.Padding = 6
	for _, style := range []*text.Style{&p.Title.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font.Variant = "Sans"
		style.Font.Size = textSize
	}
	bars := newBars(half, lines)
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.TickerFunc(powersOfTen)
	p.X.Min, p.X.Max = bars.least, bars.most
	p.Y.Min, p.Y.Max = -0.5, float64(len(lines))-0.5
	names := make([]string, len(lines))
	if hasLabels {
		for i, l := range lines {
			names[len(lines)-1-i] = l.scenario.title
		}
	}
	p.NominalY(names...)
	p.Y.LineStyle.Width = 0
	if !hasLabels {
		p.HideY()
	}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Width = gridColor, 0
	grid.Vertical.Dashes = nil
	p.Add(grid, bars)
	for side := range sideColors {
		p.Legend.Add(legendNames[side], swatch{sideColors[side]})
	}
	p.Legend.Left, p.Legend.Top = false, false
	p.Legend.XOffs, p.Legend.YOffs = 0, -marginHeight/2
	if hasLabels {
		p.Legend = plot.NewLegend()
	}
	return p
}

// legendNames are for readers who know no sides.
var legendNames = [2]string{peer: "kube-controller-manager", ours: "nslifecycle"}

// bars are horizontal bars from the axis on, two in a row, with their values beside them.
// A plotter.BarChart begins at 0, which a log axis does not have.
type bars struct {
	half        panel
	lines       []*line
	least, most float64
	style       text.Style
}

func newBars(half panel, lines []*line) *bars {
	b := &bars{half: half, lines: lines, least: leastBar, most: leastBar}
	for _, l := range lines {
		for side := range l.samples {
			if value := half.value(l, side); value > 0 {
				b.least, b.most = min(b.least, value), max(b.most, value)
			}
		}
	}
	b.least = math.Pow10(int(math.Floor(math.Log10(b.least))))
	// Room for the numbers beside the longest bars.
	b.most = max(b.most*math.Pow(b.most/b.least, 0.2), b.least*10)
	b.style = text.Style{
		Color: color.Black, Font: font.From(plot.DefaultFont, textSize-2), YAlign: text.YCenter, Handler: plot.DefaultTextHandler,
	}
	b.style.Font.Variant = "Sans"
	return b
}

// Plot draws the bars.
func (b *bars) Plot(canvas draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&canvas)
	for i, l := range b.lines {
		middle := y(float64(len(b.lines) - 1 - i))
		for side := range l.samples {
			value := b.half.value(l, side)
			if value <= 0 {
				continue
			}
			// The peer above, ours below the middle of the row.
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

// swatch is the color of a side in the legend.
type swatch struct{ color color.Color }

// Thumbnail draws it.
func (s swatch) Thumbnail(canvas *draw.Canvas) {
	canvas.FillPolygon(s.color, []vg.Point{
		{X: canvas.Min.X, Y: canvas.Min.Y}, {X: canvas.Min.X, Y: canvas.Max.Y},
		{X: canvas.Max.X, Y: canvas.Max.Y}, {X: canvas.Max.X, Y: canvas.Min.Y},
	})
}

// powersOfTen are the ticks of a log axis.
func powersOfTen(least, most float64) []plot.Tick {
	var ticks []plot.Tick
	for value := least; value <= most; value *= 10 {
		label := fmt.Sprintf("%g", value)
		if value >= 1 {
			label = formatCount(int64(math.Round(value)))
		}
		ticks = append(ticks, plot.Tick{Value: value, Label: label})
	}
	return ticks
}
