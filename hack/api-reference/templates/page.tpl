{{- define "gvList" -}}
<!-- Generated from api/v1alpha1 by `make api-reference`. Do not edit. -->
# API reference
{{ range . }}
`{{ .GroupVersionString }}` has three kinds, all cluster-scoped:
{{ range .SortedKinds }}
- [{{ . }}](#{{ . | lower }})
{{- end }}

The label and annotations of a Namespace are described in [Design](design.md#state-on-the-namespace), its conditions in [Conditions](reference/conditions.md). For Go there are [types](../api/v1alpha1) and [apply configurations](../api/v1alpha1/applyconfiguration).

The API server rejects objects that violate a rule in the "Validation" column or have an invalid name.
{{- $types := .SortedTypes }}
{{- range $types }}{{ if .GVK }}{{ template "type" . }}{{ end }}{{ end }}
{{- range $types }}{{ if not .GVK }}{{ template "type" . }}{{ end }}{{ end }}
{{ end }}
{{- end -}}

{{- define "type" }}

## {{ .Name }}

{{ .Doc }}
{{- if .References }}

Part of
{{- range $i, $reference := .SortedReferences }}{{ if $i }},{{ end }} {{ markdownRenderTypeLink $reference }}{{ end }}.
{{- end }}

| Field | Type | Description | Validation |
| --- | --- | --- | --- |
{{- if .GVK }}
| `apiVersion` | string | `{{ .GVK.Group }}/{{ .GVK.Version }}` | |
| `kind` | string | `{{ .GVK.Kind }}` | |
{{- end }}
{{- range .Members }}
| `{{ .Name }}` | {{ markdownRenderType .Type }} | {{ markdownRenderFieldDoc .Doc | replace "<br />" " " }} |
{{- range $i, $rule := .Validation }}{{ if $i }},{{ end }} {{ template "rule" $rule }}{{ end }} |
{{- end }}
{{- end }}

{{- define "rule" -}}
{{- if hasPrefix "Required" . }}required
{{- else if hasPrefix "Optional" . }}optional
{{- else if eq . "MinLength: 1" }}not empty
{{- else if hasPrefix "Enum: " . }}one of {{ . | trimPrefix "Enum: [" | trimSuffix "]" | replace " " ", " }}
{{- else if hasPrefix "Minimum: " . }}at least {{ . | trimPrefix "Minimum: " }}
{{- else if hasPrefix "Maximum: " . }}at most {{ . | trimPrefix "Maximum: " | float64 | printf "%.0f" }}
{{- else if hasPrefix "MaxItems: " . }}at most {{ . | trimPrefix "MaxItems: " }} items
{{- else if hasPrefix "MaxProperties: " . }}at most {{ . | trimPrefix "MaxProperties: " }} entries
{{- else if hasPrefix "MinLength: " . }}at least {{ . | trimPrefix "MinLength: " }} characters
{{- else if hasPrefix "MaxLength: " . }}at most {{ . | trimPrefix "MaxLength: " }} characters
{{- else if hasPrefix "Pattern: " . }}pattern {{ . | trimPrefix "Pattern: " }}
{{- else }}{{ . }}
{{- end }}
{{- end }}
