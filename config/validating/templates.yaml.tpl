# Validates the templates and the parameters that users choose for a namespace, and protects the labels and annotations
# that templates lock. The templates come from
# NamespaceInitializerSet/effective, which the operator writes. The inject policy adds the defaults
# before this policy is evaluated.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: nslifecycle-templates
  labels:
    app.kubernetes.io/name: nslifecycle
    nslifecycle.dev/policy: templates
spec:
  # This is the initial value, as in the inject policy. The operator sets Fail when every API server
  # recognizes the parameter kind and a template exists. With Ignore, an expression that exceeds its CEL
  # budget admits the request. Therefore each variable below is cheap for every request that users can send.
  failurePolicy: Ignore
  paramKind:
    apiVersion: internal.nslifecycle.dev/v1alpha1
    kind: NamespaceInitializerSet
  matchConstraints:
    resourceRules:
    - apiGroups: [""]
      apiVersions: ["v1"]
      operations: ["CREATE", "UPDATE"]
      # Writes to /status can also change labels and annotations. The guard policy rejects these changes
      # through /finalize, so that namespaces can be finalized while the CRD of the parameter kind is missing.
      resources: ["namespaces", "namespaces/status"]
      scope: "*"
  # One cheap condition: the API server evaluates all conditions. It skips clusters without templates. The
  # operator chooses no templates: it creates namespaces only as dry runs.
  matchConditions:
  - name: something-to-check
    expression: >-
      (params.?templates.orValue([]).size() > 0 ||
       object.metadata.?labels[?'nslifecycle.dev/template'].hasValue() ||
       oldObject == null && object.metadata.?annotations[?'nslifecycle.dev/selected-templates'].hasValue()) &&
      (oldObject == null || object.metadata.?labels != oldObject.metadata.?labels ||
       object.metadata.?annotations != oldObject.metadata.?annotations) &&
      !(request.userInfo.username in params.?operators.orValue([])) &&
      !({{include "isExempt"}})
  variables:
  - name: isCreate
    expression: "oldObject == null"
  - name: labels
    expression: "object.metadata.?labels.orValue({})"
  - name: oldLabels
    expression: "variables.isCreate ? {} : oldObject.metadata.?labels.orValue({})"
  - name: annotations
    expression: "object.metadata.?annotations.orValue({})"
  - name: oldAnnotations
    expression: "variables.isCreate ? {} : oldObject.metadata.?annotations.orValue({})"
  - name: chosen
    expression: "variables.labels[?'nslifecycle.dev/template'].orValue('')"
  - name: keys
    expression: "variables.annotations.filter(k, k.startsWith('parameter.nslifecycle.dev/'))"
  - name: oldKeys
    expression: "variables.oldAnnotations.filter(k, k.startsWith('parameter.nslifecycle.dev/'))"
  - name: hasChanged
    expression: >-
      variables.isCreate || variables.labels != variables.oldLabels ||
      variables.keys.exists(k, variables.annotations[?k] != variables.oldAnnotations[?k]) ||
      variables.oldKeys.exists(k, !(k in variables.annotations))
  # The templates that select the namespace, as in the inject policy: templates can have changed the labels since. The other variables and all rules
  # have nothing to check if this list is empty.
  - name: templates
    expression: >-
      !variables.hasChanged ? [] :
      variables.isCreate && 'nslifecycle.dev/selected-templates' in variables.annotations
      ? [variables.annotations['nslifecycle.dev/selected-templates'].split(',')].map(names,
          params.?templates.orValue([]).filter(t, t.name in names))[0] :
      params.?templates.orValue([]).filter(t,
        variables.chosen == t.name || {{include "selects" "selector" "t.namespaceSelector" "labels" "variables.labels" "isUnnamed" ""}})
  # The names of those that did not select it before the request.
  - name: added
    expression: >-
      (variables.isCreate ? variables.templates : variables.labels == variables.oldLabels ? [] :
       variables.templates.filter(t,
        !(variables.oldLabels[?'nslifecycle.dev/template'].orValue('') == t.name || {{include "selects" "selector" "t.namespaceSelector" "labels" "variables.oldLabels" "isUnnamed" ""}})))
      .map(t, t.name)
  - name: restricted
    expression: >-
      variables.templates.filter(t, t.?access.orValue('') == 'Restricted' && t.name in variables.added).map(t, t.name)
  # The record of the templates in the namespace, and the templates that a new namespace gets.
  - name: record
    expression: "variables.oldAnnotations[?'nslifecycle.dev/applied-templates'].orValue('')"
  - name: awaited
    expression: >-
      variables.oldLabels[?'nslifecycle.dev/initializing'].hasValue()
      ? variables.oldAnnotations[?'nslifecycle.dev/selected-templates'].orValue('').split(',') : []
  - name: recorded
    expression: >-
      {{include "recordedTemplates" "record" "variables.record"}}
  # The templates in the namespace that lock its labels and annotations.
  - name: locking
    expression: >-
      variables.isCreate ? [] : params.?templates.orValue([]).filter(t, t.?lock.orValue('') == 'All' &&
        (t.name in variables.awaited || t.name in variables.recorded))
  # What the request changes although it is locked: all keys of a new namespace and those in the record. Others cannot be
  # added, which a template sets when their parameters have values.
  - name: locked
    expression: >-
      variables.locking.map(t,
        t.?labels.orValue([]).filter(v, variables.labels[?v.key] != variables.oldLabels[?v.key] &&
          (t.name in variables.awaited || !(v.key in variables.oldLabels) ||
           variables.record.contains('"' + v.key + '":"')))
          .map(v, 'label ' + v.key + ': template "' + t.name + '" sets and locks it') +
        t.?annotations.orValue([]).filter(v, variables.annotations[?v.key] != variables.oldAnnotations[?v.key] &&
          (t.name in variables.awaited || !(v.key in variables.oldAnnotations) ||
           variables.record.contains('"' + v.key + '":"')))
          .map(v, 'annotation ' + v.key + ': template "' + t.name + '" sets and locks it') +
        (variables.labels == variables.oldLabels ||
         !(variables.oldLabels[?'nslifecycle.dev/template'].orValue('') == t.name || {{include "selects" "selector" "t.namespaceSelector" "labels" "variables.oldLabels" "isUnnamed" ""}}) ||
         (variables.chosen == t.name || {{include "selects" "selector" "t.namespaceSelector" "labels" "variables.labels" "isUnnamed" ""}})
         ? [] : ['template "' + t.name + '" locks labels or annotations, and would no longer select the namespace']))
  - name: parameterized
    expression: "variables.templates.filter(t, has(t.parameters))"
  # The total length of the patterns, and the number of lists, which have maxItems in the set. The limits of these and of the number of keys bound the
  # cost of the rules below.
  - name: patternLength
    expression: >-
      variables.parameterized.map(t, t.parameters.map(p, p.?pattern.orValue('').size()).sum()).sum()
  - name: lists
    expression: >-
      variables.parameterized.map(t, t.parameters.filter(p, has(p.maxItems)).size()).sum()
  # The following variables are lists of messages about parameters, one list for each template. A
  # parameter is checked if its template is added or if its value has changed, so that a template can
  # change without preventing updates of namespaces. Values are lists with at most one element.
  - name: missing
    expression: >-
      variables.parameterized.map(t, t.parameters.map(p,
        p.?required.orValue(false) &&
        !(has(p.labelKey) ? p.labelKey in variables.labels : ('parameter.nslifecycle.dev/' + p.name) in variables.annotations) &&
        (t.name in variables.added ||
         (has(p.labelKey) ? p.labelKey in variables.oldLabels
          : ('parameter.nslifecycle.dev/' + p.name) in variables.oldAnnotations)),
        'parameter "' + p.name + '" of template "' + t.name + '" is required: set '
        + (has(p.labelKey) ? 'label ' + p.labelKey : 'annotation parameter.nslifecycle.dev/' + p.name)))
  - name: invalid
    expression: >-
      variables.patternLength > 16384 || variables.lists > 16 ? [] : variables.parameterized.map(t, t.parameters.map(p,
        [has(p.labelKey) ? variables.labels[?p.labelKey] : variables.annotations[?('parameter.nslifecycle.dev/' + p.name)]]
        .exists(v, v.hasValue() &&
          (v.value().size() > 1024 || (has(p.maxItems)
            ? (v.value() == '' ? p.?required.orValue(false) : [v.value().split(',')].exists(l, l.size() > p.maxItems ||
                l.exists(e, e == '' || has(p.enum) && !(e in p.enum) || has(p.pattern) && !e.matches(p.pattern) ||
                  !l.exists_one(other, other == e))))
            : has(p.enum) && !(v.value() in p.enum) || has(p.pattern) && !v.value().matches(p.pattern))) &&
          (t.name in variables.added ||
           v != (has(p.labelKey) ? variables.oldLabels[?p.labelKey]
                 : variables.oldAnnotations[?('parameter.nslifecycle.dev/' + p.name)]))),
        'the value ' + [has(p.labelKey) ? variables.labels[p.labelKey] : variables.annotations['parameter.nslifecycle.dev/' + p.name]]
          .map(v, strings.quote(v.size() > 64 ? v.substring(0, 64) + '...' : v))[0]
        + ' of parameter "' + p.name + '" of template "' + t.name + '" is not permitted: it must have at most 1024 characters'
        + (has(p.maxItems) ? ' and at most ' + string(p.maxItems) + ' elements, separated by commas; each element must'
            + ' be unique and not empty' : '')
        + (has(p.enum) ? [p.enum.join('", "')].map(s,
            ' and be one of "' + (s.size() > 1024 ? s.substring(0, 1024) + '...' : s) + '"')[0] : '')
        + (has(p.pattern) ? ' and match ' + strings.quote(p.pattern) : '')))
  - name: changed
    expression: >-
      variables.parameterized.filter(t, !(t.name in variables.added)).map(t, t.parameters.map(p,
        p.?immutable.orValue(false) &&
        (has(p.labelKey)
         ? p.labelKey in variables.oldLabels && variables.labels[?p.labelKey] != variables.oldLabels[?p.labelKey]
         : [variables.oldAnnotations[?('parameter.nslifecycle.dev/' + p.name)]].exists(old, old.hasValue()
             ? variables.annotations[?('parameter.nslifecycle.dev/' + p.name)] != old
             : has(p.default) &&
               variables.annotations[?('parameter.nslifecycle.dev/' + p.name)].orValue(p.default) != p.default)),
        'parameter "' + p.name + '" of template "' + t.name + '" is immutable: its value is '
        + [(has(p.labelKey) ? variables.oldLabels[?p.labelKey]
            : variables.oldAnnotations[?('parameter.nslifecycle.dev/' + p.name)]).orValue(p.?default.orValue(''))]
          .map(v, strings.quote(v.size() > 64 ? v.substring(0, 64) + '...' : v))[0]))
  # The templates that inject has recorded and that this policy has not checked: the API server updates the
  # parameters of mutating and validating policies independently.
  - name: unknown
    expression: >-
      !variables.isCreate || !('nslifecycle.dev/selected-templates' in variables.annotations) ? [] :
      [params.?templates.orValue([]).map(t, t.name)].map(names,
        variables.annotations['nslifecycle.dev/selected-templates'].split(',').filter(n, !(n in names)))[0]
  - name: declared
    expression: >-
      variables.parameterized.map(t, t.parameters.filter(p, !has(p.labelKey))
        .map(p, 'parameter.nslifecycle.dev/' + p.name))
  - name: undeclared
    expression: >-
      !variables.isCreate || variables.templates.size() == 0 || variables.keys.size() > 128 ? [] :
      variables.keys.filter(k, !variables.declared.exists(names, k in names))
  # What is invalid, as lists of messages: the API server evaluates the messages of valid requests too, so one rule has
  # all of these.
  - name: problems
    expression: >-
      [variables.chosen == '' || params.?templates.orValue([]).exists(t, t.name == variables.chosen) ||
       !variables.isCreate && variables.oldLabels[?'nslifecycle.dev/template'].orValue('') == variables.chosen ? [] :
       ['label nslifecycle.dev/template: NamespaceTemplate "' + variables.chosen + '" does not exist'],
       variables.unknown.map(n, 'the API server is still updating NamespaceTemplate "' + n
         + '", which selects the namespace: repeat the request'),
       variables.templates.size() == 0 || variables.keys.size() <= 128 ? [] :
       ['a namespace with a template can have at most 128 annotations with the prefix parameter.nslifecycle.dev/'],
       variables.patternLength <= 16384 ? [] :
       ['the patterns of the NamespaceTemplates that select the namespace are longer than 16384 characters in total'],
       variables.lists <= 16 ? [] :
       ['the NamespaceTemplates that select the namespace have more than 16 parameters that are lists in total']] +
      variables.missing + variables.invalid + variables.changed +
      [variables.undeclared.map(k, 'annotation ' + k + ': '
        + (variables.templates.size() == 1 ? 'template "' + variables.templates[0].name + '" does not declare this parameter'
           : 'no template that selects the namespace declares this parameter'))]
  validations:
  - expression: "variables.problems.all(p, p.size() == 0)"
    reason: Invalid
    message: "a parameter of a NamespaceTemplate is missing, not permitted or immutable"
    messageExpression: >-
      variables.problems.all(p, p.size() == 0) ? '' : variables.problems.filter(p, p.size() > 0)[0][0]
  - expression: >-
      variables.locked.all(m, m.size() == 0) || {{include "mayProvision" "namespace" "object.metadata.name"}}
    reason: Forbidden
    messageExpression: >-
      variables.locked.all(m, m.size() == 0) ? '' :
      variables.locked.filter(m, m.size() > 0)[0][0] + ': a change requires the verb "provision" or "initialize" on namespaces, granted'
      + ' by a ClusterRoleBinding; to change it, change the template or its parameters'
  # Each check has its own CEL budget. An expression can contain at most two checks.
  - expression: "variables.restricted.size() <= 8"
    reason: Forbidden
    messageExpression: >-
      variables.restricted.size() <= 8 ? '' :
      'the request chooses ' + string(variables.restricted.size()) + ' restricted templates, and at most 8 are possible'
{{- range $i := 8}}
  - expression: >-
      variables.restricted.size() <= {{$i}} || authorizer.group('nslifecycle.dev').resource('namespacetemplates')
      .name(variables.restricted[{{$i}}]).check('use').allowed()
    reason: Forbidden
    messageExpression: >-
      variables.restricted.size() <= {{$i}} ? '' :
      'user "' + request.userInfo.username + '" is not allowed to use template "' + variables.restricted[{{$i}}]
      + '": this requires the verb "use" on this NamespaceTemplate'
{{- end}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: nslifecycle-templates
  labels:
    app.kubernetes.io/name: nslifecycle
    nslifecycle.dev/policy: templates
spec:
  policyName: nslifecycle-templates
  validationActions: ["Deny"]
  # Without a set, the operator has not started, and no template is effective.
  paramRef:
    name: effective
    parameterNotFoundAction: Allow
  # These rules repeat the policy's match constraints: the operator restores only fields that it sets.
  matchResources:
    resourceRules:
    - apiGroups: [""]
      apiVersions: ["v1"]
      operations: ["CREATE", "UPDATE"]
      resources: ["namespaces", "namespaces/status"]
      scope: "*"
