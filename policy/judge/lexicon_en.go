package judge

// enWords is the English part of the lexicon, in lower case and without apostrophes, and
// the few words of other languages that are met among it. The notation is that of
// [expand].
//
// What is missing is missing on purpose: not, but, please, need, can you, will, now, done, fixed, looks.
var enWords = [classCount]string{
	filler: `oh ooh oooh ah ahh aw aww hmm hm ha hah heh yo well so then mwah xoxo indeed there and`,
	title: `
		everyone everybody all {,the_whole_,the_,this_,whole_,you_}{team,crew,gang,squad} {you_,}guys
		{,my_,dear_,kind_}{folks,friend,friends,fam,buddy,mate,mates,sir,madam,bro,bros,dude,man,pal,boss,colleagues,teammates,teammate,fellow,fellas,legends,champ,ladies,gentlemen}
		yall you_all you_both people dear`,

	nod: `
		ok okay okey okie okeydokey okey_dokey okie_dokie oki okk k kk sure sure_thing for_sure yes yes_indeed yep
		yeah yup ya yea aye alright all_right alrighty right got_{it,that,ya,you} gotcha understood noted duly_noted
		roger roger_that copy copy_that
		{that_,it_,}{all_,}sounds_{good,great,perfect,fine,lovely,wonderful,awesome,fantastic,excellent,right,fair}{,_to_me,_to_us}
		sounds_like_a_{great_,good_,solid_,}plan
		{that_,it_,}{totally_,all_,definitely_,perfectly_,}makes_{,total_,perfect_,complete_}sense{,_to_me}
		fair_enough of_course certainly definitely absolutely exactly precisely totally so_true very_true agreed deal
		{that_is,thats,youre,you_are,quite,very}_{,so_,absolutely_,totally_,very_,quite_}{right,true,correct,fair,fine}
		i_see as_you_wish by_all_means received acknowledged message_received naturally loud_and_clear fine_by_me
		{crystal_,}clear noted_and_understood {i_,}will_{keep_{that,it,this}_in_mind,do_my_best} oui si_si correct
		aye_aye right_on wow whoa yay woohoo {woo_,}woo{_hoo,} woot hooray hurray huzzah {ha,}haha{ha,}{ha,} hehe{he,}
		lol lmao rofl phew boom omg yippee yessir ofc np_ok`,
	agree: `
		{i_,we_,}{,totally_,completely_,fully_,wholeheartedly_,strongly_,absolutely_,definitely_,really_}agree
		{i_,}{couldnt,could_not,cant}_agree_more {i_,}concur {were_,we_are_,}on_the_same_page
		{i_,}{second,seconded}_{that,this} {im_,i_am_,}{right_,totally_,}with_you great_minds_think_alike`,
	view: `point points view views perspective take opinion assessment sentiment every_word one_hundred_percent`,

	thank: `
		thanks thank_{you,u,ya,yall} thankyou thx thnx thanx tnx tks ty tysm tyvm cheers appreciated appreciate
		appreciative grateful gratitude thankful obliged {i_,}owe_you_{one,a_coffee,a_beer}
		couldnt_have_done_it_without_{you,you_all,everyone,the_team,your_help} merci{,_beaucoup} {muchas_,}gracias
		danke arigato arigatou grazie obrigado spasibo a_big_thank_you big_thanks many_thanks hats_off tip_of_the_hat`,
	given: `
		helping supporting supportive patience patient understanding effort efforts cooperation cooperating quickly
		prompt speedy swift timely responses responding replies replying updating explanations explaining
		clarifications clarifying confirming heads_up reminder reminding inputs insight insights insightful assisting
		attention word words checking looking_into participating participation pointing_out pointing catching
		discussions conversation thought thoughts thoughtful thoughtfulness thorough thoroughness detailed clear
		concise kind generous valuable invaluable perspective perspectives suggestion suggestions suggesting guidance
		guiding tips contribution contributions contributing kindness generosity sharing letting_{me,us,everyone}_know
		having_{me,us} being hard_work hardwork hard dedication dedicated commitment professionalism expertise
		knowledge trusting encouragement encouraging compliment compliments recognition acknowledgement acknowledgment
		turnaround following_up coordination coordinating jumping_in pitching_in stepping_in chiming_in weighing_in
		hosting organizing organising leading leadership listening taking_{the,your}_time trouble flagging noticing
		spotting answering answers summarizing summarising teaching consideration considerate warm warmth caring
		courtesy diligence diligent enthusiasm energy positivity welcoming involved concerned
		making_{this,it}_{happen,possible,work,easy,easier,fun,smooth,so_easy,a_success,such_a_success} attitude
		spirit attention_to_detail sincere sincerely heartfelt genuinely inspiration inspiring offering
		getting_back_to_{me,us} getting_back running_through walking_{me,us}_through
		keeping_{me,us,everyone}_{posted,updated,informed,in_the_loop} bearing_with_{me,us}
		putting_{this,it,everything}_together on_{this,it,that,everything}
		{,everything_,all_,all_that_,what_}{you,youve,you_all,you_guys}_{do,did,done,have_done} going_above_and_beyond
		going_the_extra_mile staying_late good_catch`,
	noun: `
		help support update updates note notes message offer trust care invite answer reply response welcome wishes
		time moment input follow_up followup summary recap discussion feedback confirmation explanation share guide
		everything anything today tip advice info information clarification assistance immediate fast quick role`,
	praise: `
		great perfect perfectly awesome nice cool excellent fantastic wonderful amazing brilliant lovely good
		impressive impressed superb incredible incredibly outstanding terrific marvelous marvellous splendid stellar
		fabulous beautiful beautifully neat sweet super exceptional exceptionally remarkable phenomenal magnificent
		gorgeous epic solid dope lit rad sick_work kudos bravo props_to congrats congratulations congratz grats gratz
		well_{done,said,put,played,deserved,earned} nicely_{done,said,put} {great,nice,good,lovely,excellent}_one
		{great,good,nice,excellent,amazing,awesome,solid,terrific,fantastic}_{job,work,catch,point,idea,answer,summary,explanation,analysis,teamwork,effort,stuff,call,thinking,question,to_hear,to_know,news,chat,talk,spirit,shot,going,show,team}
		helpful clever smart insightful inspiring delightful best legend legendary legends lifesaver life_saver
		rockstar rockstars rock_star genius hero heroes champion champions superstar superstars way_to_go
		love_{it,this,that,to_see_it,to_see_this} keep_{it_up,up_the}
		keep_up_the_{great,good,amazing,awesome,excellent}_{work,spirit,job} spot_on on_point nailed_it
		{you,you_guys,you_all,yall,team}_{rock,rocks,nailed_it,crushed_it,killed_it,did_it} crushed_it killed_it
		high_five high_fives thumbs_up two_thumbs_up {couldnt,could_not}_have_{said,put}_it_better
		{music,music_to_my_ears} to_my_ears what_a what_an
		how_{kind,nice,sweet,thoughtful,lovely,wonderful,cool,awesome}{,_of_you,_is_that}
		couldnt_be_{happier,better,prouder} go_team go_us bueno first_class top_notch world_class a_plus chefs_kiss
		kinda_love_it good_stuff mad_respect hell_yeah heck_yeah_team nailed impeccable flawless`,
	joy: `
		glad happy pleased delighted thrilled excited ecstatic honored honoured proud pleasure honor honour privilege
		privileged enjoyed enjoyable enjoying joy blast fun touched humbled relieved blessed lucky fortunate
		means_{a_lot,so_much,the_world}{,_to_me,_to_us} made_my_{day,week}
		{great,good,nice,lovely,wonderful,awesome,amazing,fantastic,fun,so_good,so_great,so_nice}_to
		{great,good,nice,lovely,wonderful,awesome,amazing,fantastic}_{working,collaborating,chatting,talking,meeting,partnering}
		{loved,love}_{working,collaborating,being,chatting} music_to_my_ears love_you {much_,lots_of_,sending_}love
		hugs big_hug warms_my_heart`,
	hope: `hope hoping hopefully looking_forward look_forward cant_wait can_not_wait until_next_time till_next_time`,
	wish: `
		{have,have_yourselves,have_yourself}_{a,an}_{very_,really_,truly_,}{great,good,nice,wonderful,lovely,awesome,fantastic,amazing,excellent,productive,pleasant,restful,relaxing,safe,blessed,beautiful,peaceful,fabulous,terrific,super,happy,splendid,brilliant,smooth,fun}
		enjoy wishing {sending,with}_{my_,our_,}best_wishes best_wishes all_the_{very_,}best best_of_luck good_luck
		best_regards {kind_,warm_,warmest_,kindest_,}regards fingers_crossed
		stay_{safe,healthy,well,awesome,positive,warm,cool,strong,golden,hydrated}{,_and_{healthy,safe,well,happy}}
		rest_{well,up} get_some_{rest,well_deserved_rest,sleep} sleep_{well,tight} safe_{travels,trip,journey,flight}
		happy_{weekend,new_year,holidays,friday,birthday,monday,holiday,easter,thanksgiving,coding}
		merry_{christmas,xmas} happy_lunar_new_year may_{you,you_all,your} {the_,}same_to_{you,you_all,you_too}
		you_too back_at_{you,ya} right_back_at_{you,ya} you_as_well {cheers,heres}_to
		{yours_,}{sincerely,truly,faithfully} best cheers_to bon_voyage bon_appetit onward_and_upward godspeed
		best_of_everything to_many_more heres_to_many_more`,
	bye: `
		bye goodbye bye_bye byebye byee bye_for_now good_bye ciao cya farewell adios au_revoir sayonara
		{see,catch}_{you,ya,u,yall,you_all,everyone}
		{talk,chat,speak}_{soon,later,to_you_soon,to_you_later,tomorrow,again_soon} laters
		until_{next_time,then,tomorrow,we_meet_again} till_next_time cheerio so_long take_care take_it_easy
		good_{morning,afternoon,evening,night,day} goodnight gnight nighty_night sweet_dreams ttyl gn gm hi hello hey
		hiya howdy greetings signing_off over_and_out
		{thats,that_is,that_was}_{all,it,everything}{,_from_me,_for_now,_for_today,_from_my_side,_then,_i_needed}
		nothing_{else,more}{,_from_me,_from_my_side,_from_my_end,_on_my_side,_on_my_end}
		no_{further,more,other}_questions{,_from_me,_from_my_side} keep_in_touch stay_in_touch peace peace_out
		have_a_good_one {dont,do_not}_be_a_stranger welcome_{aboard,to_the_team,back}`,
	kind: `
		{youre,you_are,your,ur}_{,very_,most_,always_,so_,more_than_,super_}welcome welcome no_problem{,_at_all} np nw
		no_{worries,prob,probs,biggie,trouble,sweat,stress,big_deal}{,_at_all} any_time anytime
		{dont,do_not}_mention_it {its,it_was,that_was,think}_nothing{,_of_it} not_at_all
		{its_,the_,it_was_,it_is_,was_,}{all_,entirely_,}{my,our,mine}_pleasure
		{the_,}pleasure_{is,was}_{all_,entirely_,}{mine,ours} pleasures_{all_,}mine with_pleasure all_good
		its_{ok,okay,fine,alright,all_right,all_good,cool}
		thats_what_{im,we_are,were,i_am,friends_are,teammates_are,teams_are}_{here_,}{for,there_for}
		what_{im,were}_here_for too_kind {im_,}flattered you_flatter_me likewise ditto least_{i,we}_could_do
		{sorry,apologies,sorry_again,my_apologies}_{for,about}_{the,any,all_the,all}_{trouble,inconvenience,delay,bother,confusion,interruption,disturbance,hassle}
		no_need_to_{thank_me,thank_us,apologize,apologise} no_thanks_{needed,necessary}
		{im_,i_am_,were_,we_are_,im_always_,always_,were_always_,more_than_}{glad,happy,pleased,delighted}_{to,i_could,we_could}_{help,assist,be_of_help,be_of_service,be_of_assistance,serve}{,_out,_you,_with_this,_with_that}
		team_effort
		{it_,it_really_,this_,this_really_,that_,it_truly_,truly_,really_,}{was,is}_{a_,truly_a_,really_a_,such_a_,a_true_,a_real_,all_a_}{team,group,joint,collective}_effort
		{it_,}takes_{a_village,two_to_tango} teamwork_makes_the_dream_work credit_goes_to all_credit_to all_thanks_to
		{that_,this_,it_,}{really_,}helps{,_a_lot,_a_ton,_so_much}
		{at_your_service,always_at_your_service,at_your_disposal}`,

	iff: `if in_case should_you should_you_have should_anything whenever_you anytime_you`,
	need: `
		need needs want require any anything something question questions concern concerns issue issues doubt doubts
		more further other else additional additionally help assistance support clarification again future
		in_the_future down_the_road down_the_line along_the_way comes_up come_up pops_up arises arise useful in_future
		ever directly please just always i us me assist is are there there_is theres {i,we}_can_{do,help,assist} do you_think_of think_of
		with_this with_that with_anything from_me as_well later_on hand or {i,we}_can
		have_{any,more,further,other,additional,anything,some}{,_other,_further,_more,_else}{,_questions,_concerns,_doubts}`,
	offer: `
		feel_free {dont,do_not,never,please_dont,please_do_not}_hesitate
		{youre,you_are}_{always_,more_than_,}welcome_to`,
	call: `
		ask asking ask_away just_ask reach reach_out reaching_out contact contacting {let,letting}_{me,us}_know ping
		pinging message call call_on get_in_touch tag mention shout shout_out holler give_me_a_shout
		drop_me_a_{line,message,note} come_back return to_ask poke summon dm any_time anytime at_any_time whenever`,
	here: `
		{im_,i_am_,were_,we_are_,ill_be_,well_be_,ill_always_be_,always_,still_,im_always_,were_always_,i_am_always_,im_right_,im_still_,ill_still_be_}here{,_to_help,_to_assist,_for_you,_for_you_all,_if_needed,_anytime,_any_time,_to_support_you,_for_anything,_to_support,_whenever_you_need,_whenever_you_need_me,_for_everyone}
		always_{here,around,available,happy_to_help,glad_to_help,at_your_service}{,_for_you,_to_help,_to_assist}
		just_a_{ping,message,mention,shout,tag}_away {one,a}_message_away {ive,i_have,weve}_got_your_back`,

	degree: `
		very really truly so soo such much many super extremely incredibly absolutely totally completely highly deeply
		especially particularly most too quite pretty simply just genuinely sincerely greatly immensely a_lot a_ton
		a_bunch loads tons lots a_million a_whole_lot heaps big huge massive real true utterly massively hugely
		wholeheartedly infinitely insanely`,
	quality: `
		clear detailed thorough concise timely helpful kind thoughtful valuable informative quick fast smooth
		productive generous insightful useful patient sweet`,
	adverb: `
		again also as_well too always once once_again as_always indeed certainly definitely kindly finally surely
		already still together all everyone everybody in_advance here`,
	person: `both you u ya your ur yours youre youve yourself yourselves they their them him her`,
	self:   `i we us me my our im ive weve were ours myself id wed`,
	thing:  `this that it its thats these those everything here each every`,
	shared: `
		work working collaborate collaborating collaborated collaboration collaborations partner partnering
		partnership teamwork teaming teaming_up together chatting talking session sessions meeting conversation
		conversations discussion project projects task mission journey experience effort efforts achievement
		achievements accomplishment accomplishments accomplished accomplish milestone success successes win wins job
		team group crew community company agents group_effort working_with_you{,_all,_both}_on_{this,it}
		{working,work,collaborating,worked}_together_on_{this,it}
		{working,work,collaborating}_with_{everyone,the_team,you_guys}_on_{this,it} contribution learning part bunch
		whole entire adventure chapter many more moments again adventures collabs collab spirit vibes energy news
		{everything_,all_,all_that_,all_of_,}{what_,}{we,weve,we_have,you,youve,the_team_has,we_all,youve_all}_{all_,}{done,built,accomplished,achieved,created,made}{,_together,_here,_today}`,
	when: `
		day days weekend evening night morning afternoon week month year holiday holidays season time times trip
		flight home journey today tonight tomorrow soon around next_{time,week,month,year,session,one} later now ahead
		rest rest_of new christmas lunch dinner break coffee meal vacation then year_ahead next_time sleep celebration
		moment well_deserved well_earned`,
	deed: `
		helping helped helps assisting hearing seeing knowing been having had joined joining learned learning
		contributed contributing serving service meet met found like liked love loved enjoyed useful helpful able
		on_the_same_page aligned well smoothly smooth succeeded finding opportunity chance supporting watching
		to_{always_,}{help,assist,hear,see,know,be,have,learn,contribute,serve,find,support,watch,read,meet}
		{i,we,you,it}_could_{all_,}{help,assist,be_of_help,be_of_service,contribute,support,work_together,join}
		{being_,be_,been_,a_,}part assistance being hear see`,
	outcome: `
		{,it_,that_,this_,its_,everything_,things_,all_,it_all_,everything_has_}{worked,worked_out,works_out,sorted,resolved,solved,works,went_well,turned_out,turned_out_well,worked_out_well,came_together,came_together_nicely,helped,succeeded,made_it,did_it,working_out}
		could_{get,make,sort,resolve,solve,figure}_{this,it,that,everything,things}_{sorted,resolved,done,out,happen,together,solved,work}
		{got,sorted,resolved}_{this,it,that,everything}_{sorted,resolved,done,out,}`,
	boon: `
		have has had having be been being stay enjoy helps helped help_you find found useful helpful continue again
		safe healthy happy happiness health success successful well joy peace prosperous prosperity luck fun filled
		full best productive restful relaxing bright keep keeping soon cross paths meet next work_together_again
		chance opportunity everyone_well better more come dreams sweet hear_from_you collaborating success_in
		good_things things yours year`,
	glue: `
		a an the of to for with in at by as from am be been being had have and or that this it than into over through
		across between while because since lot bit like way ways`,
	copula: `is are was were`,
}
